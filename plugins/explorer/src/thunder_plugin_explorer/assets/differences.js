// The differences of two stages as aligned rows [before, after]: positions of ops, or null where there is none.

function differences(before, after) {
  const rows = [];
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start += 1;
  let endBefore = before.length;
  let endAfter = after.length;
  while (endBefore > start && endAfter > start && before[endBefore - 1] === after[endAfter - 1]) {
    endBefore -= 1;
    endAfter -= 1;
  }
  for (let index = 0; index < start; index += 1) rows.push([before[index], after[index]]);
  // Ops that both stages have, in an order that both have: the longest increasing subsequence of their positions.
  const positions = new Map();
  for (let index = start; index < endAfter; index += 1) {
    if (!positions.has(after[index])) positions.set(after[index], []);
    positions.get(after[index]).push(index);
  }
  const pairs = [];
  for (let index = start; index < endBefore; index += 1) {
    const found = positions.get(before[index]);
    if (found && found.length) pairs.push([index, found.shift()]);
  }
  let [left, right] = [start, start];
  for (const [a, b] of [...longestIncreasing(pairs), [endBefore, endAfter]]) {
    while (left < a && right < b) rows.push([before[left++], null], [null, after[right++]]);
    while (left < a) rows.push([before[left++], null]);
    while (right < b) rows.push([null, after[right++]]);
    if (a < endBefore) rows.push([before[left++], after[right++]]);
  }
  for (let index = endBefore; index < before.length; index += 1) rows.push([before[index], before[index]]);
  return joined(rows);
}

// Rows in which a removed op and one with the same results that replaces it are side by side.
function joined(rows) {
  const result = [];
  for (let index = 0; index < rows.length; ) {
    if (rows[index][0] !== null && rows[index][1] !== null) {
      result.push(rows[index++]);
      continue;
    }
    const removed = [];
    const added = [];
    while (index < rows.length && (rows[index][0] === null || rows[index][1] === null)) {
      if (rows[index][0] !== null) removed.push(rows[index][0]);
      else added.push(rows[index][1]);
      index += 1;
    }
    let next = 0;
    for (const op of added) {
      const found = removed.findIndex((other, position) => position >= next && sameResult(other, op));
      if (found < 0) {
        result.push([null, op]);
        continue;
      }
      while (next < found) result.push([removed[next++], null]);
      result.push([removed[next++], op]);
    }
    while (next < removed.length) result.push([removed[next++], null]);
  }
  return result;
}

function sameResult(first, second) {
  return OPS[first].outputs.length > 0 && OPS[second].outputs.includes(OPS[first].outputs[0]);
}

function longestIncreasing(pairs) {
  const ends = [];
  const previous = new Array(pairs.length).fill(-1);
  pairs.forEach(([, value], index) => {
    let low = 0;
    let high = ends.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (pairs[ends[middle]][1] < value) low = middle + 1;
      else high = middle;
    }
    previous[index] = low ? ends[low - 1] : -1;
    ends[low] = index;
  });
  const found = [];
  for (let index = ends.length ? ends[ends.length - 1] : -1; index >= 0; index = previous[index]) found.push(pairs[index]);
  return found.reverse();
}
