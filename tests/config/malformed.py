"""Malformed configurations: each with every problem that is to be found, as it is to be printed after ``c.yaml:``."""

from __future__ import annotations

VENDOR = (
    "the plugin 'vendor' (thunder-plugin-vendor 2.0) cannot be used: it needs a-vendor-library, which is not installed"
)

# What the plugins of these tests make of it needs to be named: `tests/config/distributions.py` has them.
MALFORMED: dict[str, tuple[str, list[str]]] = {
    # --- options of the configuration
    "unknown option": (
        "cach: same input\n",
        ["1: cach: unknown option; did you mean 'cache'?"],
    ),
    "unknown option, none near": (
        "cache: same input\n\n\nzzz: 1\n",
        ["4: zzz: unknown option"],
    ),
    "value not accepted": (
        "cache: same inputs\n",
        ["1: cache: 'same inputs' is not accepted; did you mean 'same input'?"],
    ),
    "value not accepted, none near": (
        "sharp_edges: off\n",
        ["1: sharp_edges: 'off' is not accepted; it is one of 'allow', 'warn', 'error'"],
    ),
    "a truth value for a name": (
        "sharp_edges: true\n",
        ["1: sharp_edges: true is not accepted; it is one of 'allow', 'warn', 'error'"],
    ),
    "symbolic values": (
        "\ncache: symbolic values\n",
        ['2: cache: "symbolic values" is not available yet: numbers are compiled as constants'],
    ),
    "no value": (
        "# comment\nexecutors:\ncache: same input\n",
        ["2: executors: has no value; leave the line out for the default"],
    ),
    "number in quotes": (
        'recompile_limit: "8"\n',
        ["1: recompile_limit: must be an integer, not the text '8'; leave out the quotes"],
    ),
    "numbers out of range": (
        "recompile_warning: 1.5\nrecompile_limit: 0\n",
        [
            "1: recompile_warning: must be an integer, not the number 1.5",
            "2: recompile_limit: must be at least 1, not 0",
        ],
    ),
    "a truth value for a number": (
        "recompile_limit: true\n",
        ["1: recompile_limit: must be an integer, not true"],
    ),
    "unknown policy": (
        "recompute: chep\n",
        ["1: recompute: 'chep' is not a recompute policy; did you mean 'cheap'?"],
    ),
    "policy of the wrong type": (
        "recompute: [none]\n",
        [
            "1: recompute: a list is not a recompute policy; it is one of 'none', 'cheap', 'aggressive', or "
            "{budget: share}"
        ],
    ),
    "memory without a unit that is known": (
        "memory: 22 gigs\n",
        ["1: memory: '22 gigs' is not a number of bytes; write '22 GiB' (2**30 bytes each) or '500 MB' (10**6)"],
    ),
    "no memory": (
        "memory: 0\n",
        ["1: memory: must be at least 1, not 0"],
    ),
    "memory of the wrong type": (
        "memory: [1]\n",
        ["1: memory: must be a number of bytes, such as 500000000 or '22 GiB', not a list"],
    ),
    "misspelt budget": (
        "recompute:\n  budgt: 0.5\n",
        [
            "1: recompute.budget: is missing",
            "2: recompute.budgt: unknown option; did you mean 'budget'?",
        ],
    ),
    "infinite budget": (
        "recompute:\n  budget: .inf\n",
        ["2: recompute.budget: must be a finite number, not the number inf"],
    ),
    "negative budget": (
        "recompute:\n  budget: -1\n",
        ["2: recompute.budget: must be at least 0, not -1"],
    ),
    "unknown front end": (
        "front_end: rum\n",
        ["1: front_end: there is no front end 'rum'; did you mean 'run'?"],
    ),
    "a list of presets": (
        "extends: [default]\n",
        ["1: extends: must be text, not a list"],
    ),
    "unknown preset": (
        "cache: same input\nextends: defaut\n",
        ["2: extends: there is no preset 'defaut'; did you mean 'default'?"],
    ),
    "missing file": (
        "extends: base.yaml\n",
        ["1: extends: base.yaml: file not found"],
    ),
    "extends itself": (
        "extends: ./c.yaml\n",
        ["1: extends: is circular: c.yaml → c.yaml"],
    ),
    "requirements": (
        'requires:\n  - torch>=99\n  - thunder-plugin-vendor[lib]\n  - "two words"\n  - absent\n  - 3\n',
        [
            "2: requires[0]: torch {torch} is installed, not >=99; run: pip install 'torch>=99'",
            "3: requires[1]: for thunder-plugin-vendor[lib], a-vendor-library is not installed; "
            "run: pip install 'thunder-plugin-vendor[lib]'",
            "4: requires[2]: must be a requirement like 'thunder-plugin-cudnn>=0.1': "
            "Expected semicolon (after name with no version specifier) or end",
            "5: requires[3]: absent is not installed; run: pip install 'absent'",
            "6: requires[4]: must be a requirement like 'thunder-plugin-cudnn>=0.1': not the number 3",
        ],
    ),
    "requirements as text": (
        "requires: torch\n",
        ["1: requires: must be a list of requirements, not the text 'torch'"],
    ),
    # --- entries
    "a name instead of a list": (
        "executors: nvfuser\n",
        [
            "1: executors: must be a list, not the text 'nvfuser'; write [nvfuser], or put `- ` before each name "
            "on a line of its own"
        ],
    ),
    "a mapping instead of a list": (
        "executors:\n  nvfuser:\n    cache: true\n",
        ["1: executors: must be a list, not a mapping; put `- ` before each name"],
    ),
    "options not indented": (
        "executors:\n  - fast\n  - nvfuser:\n    cache: true\n",
        ["3: executors[1]: 'cache' is not below 'nvfuser'; indent options further than the name before them"],
    ),
    "two names in one entry": (
        "executors:\n  - nvfuser: {}\n    fast: {}\n",
        ["2: executors[0]: has two names, 'nvfuser' and 'fast'; begin each entry with `- ` on a line of its own"],
    ),
    "options are a name": (
        "executors:\n  - nvfuser: fast\n",
        ["2: executors[0]: the options of 'nvfuser' must be a mapping, `option: value`, not the text 'fast'"],
    ),
    "entries of the wrong type": (
        'executors:\n  - 3\n  -\n  - [fast]\n  - ""\n  - fast\n',
        [
            "2: executors[0]: must be the name of an executor, or {name: options}, not the number 3",
            "3: executors[1]: must be the name of an executor, or {name: options}, not nothing",
            "4: executors[2]: must be the name of an executor, or {name: options}, not a list",
            "5: executors[3]: must be the name of an executor, or {name: options}, not nothing",
        ],
    ),
    "twice": (
        "executors:\n- nvfuser\n- fast\n- nvfuser: {cache: false}\n",
        ["4: executors[2]: 'nvfuser' is listed twice, first as entry [0]"],
    ),
    "twice, under two names": (
        "executors:\n- kernels.fast\n- slow\n- fast\n",
        ["4: executors[2]: 'fast' is listed twice, first as 'kernels.fast'"],
    ),
    "unknown executor": (
        "executors:\n- fast\n- nvfusr\n",
        ["3: executors[1]: there is no executor 'nvfusr'; did you mean 'nvfuser'?"],
    ),
    "unknown executor of a plugin": (
        "executors: [kernels.fst]\n",
        [
            "1: executors[0]: the plugin 'kernels' (thunder-plugin-kernels 1.0) offers no executor 'fst'; "
            "did you mean 'fast'?"
        ],
    ),
    "plugin without its library": (
        "executors:\n  - vendor\n",
        [f"2: executors[0]: {VENDOR}"],
    ),
    "an executor among the transforms": (
        "transforms: [slow]\n",
        ["1: transforms[0]: there is no transform 'slow'"],
    ),
    # --- options of plugins
    "unknown option of an executor": (
        "executors:\n  - fast\n  - nvfuser:\n\n      cach: true\n",
        ["5: executors[1].nvfuser.cach: unknown option; did you mean 'cache'?"],
    ),
    "option of another executor": (
        "executors:\n  - fast: {cache: true}\n",
        ["2: executors[0].fast.cache: unknown option"],
    ),
    "many options": (
        "executors:\n"
        "  - nvfuser:\n"
        "      on_decline: warning\n"
        "      include: '*softmax*'\n"
        "      exclude: ['*norm*', 3]\n"
        "      size: 3\n"
        "      share: half\n"
        "      cache: yes\n"
        "      limit: x\n"
        "      tiles:\n"
        "        rows: 1\n"
        "        column: 2\n",
        [
            "3: executors[0].nvfuser.on_decline: 'warning' is not accepted; did you mean 'warn'?",
            "4: executors[0].nvfuser.include: must be a list, not the text '*softmax*'",
            "5: executors[0].nvfuser.exclude[1]: must be text, not the number 3; put it in quotes",
            "6: executors[0].nvfuser.size: 3 is odd, and must be even",
            "7: executors[0].nvfuser.share: must be a number, not the text 'half'",
            "8: executors[0].nvfuser.cache: must be true or false, not the text 'yes'; write it as true or false",
            "9: executors[0].nvfuser.limit: must be an integer, not the text 'x'; or 'x' is not accepted; "
            "only 'auto' is",
            "12: executors[0].nvfuser.tiles.column: unknown option; did you mean 'columns'?",
        ],
    ),
    "option out of range": (
        "executors: [{nvfuser: {size: 100}}]\n",
        ["1: executors[0].nvfuser.size: must be at most 64, not 100"],
    ),
    "options of transforms": (
        "transforms:\n  - quantize: {bits: 8.5}\n  - constant_folding:\n      limit: -1\n      enable: false\n",
        [
            "2: transforms[0].quantize.bits: must be an integer, not the number 8.5",
            "4: transforms[1].constant_folding.limit: must be at least 0, not -1",
            "5: transforms[1].constant_folding.enable: unknown option; did you mean 'enabled'?",
        ],
    ),
    # --- YAML
    "no mapping": (
        "\n- executors\n",
        ["2: must be a mapping, `option: value`, not a list"],
    ),
    "only text": (
        "cache same input\n",
        ["1: must be a mapping, `option: value`, not the text 'cache same input'"],
    ),
    "the same option twice": (
        "cache: same input\nrecompile_limit: 3\ncache: no caching\n",
        ["3: cache: is set twice, first in line 1"],
    ),
    "the same option of a plugin twice": (
        "executors:\n  - nvfuser:\n      size: 2\n      size: 4\n",
        ["4: executors[0].nvfuser.size: is set twice, first in line 3"],
    ),
    "tab": (
        "executors:\n\t- fast\n",
        ["2: a tab cannot indent; use spaces"],
    ),
    "entries that are not aligned": (
        "executors:\n  - fast\n - slow\n",
        ["3: indent this line like the entries that it belongs to"],
    ),
    "list that does not end": (
        "executors: [fast,\n  slow\n",
        [
            "3: cannot be read: expected ',' or ']', but got '<stream end>' (while parsing a flow sequence, which "
            "begins in line 1)"
        ],
    ),
    "two colons": (
        "cache: same: input\n",
        ["1: a `: ` is not expected here; indent this line like its neighbours, or put text that has a `: ` in quotes"],
    ),
    "no colon": (
        "cache: same input\nexecutors\ntransforms: []\n",
        ["3: expected `name: value`; there is no `: ` here"],
    ),
    "pattern without quotes": (
        "executors:\n- nvfuser:\n    exclude: [*softmax]\n",
        ["3: *softmax is an alias, which is not accepted; put text that begins with `*` in quotes"],
    ),
    "pattern without quotes, with two stars": (
        "executors:\n- nvfuser:\n    exclude: [*softmax*]\n",
        ["3: text that begins with `*` must be in quotes"],
    ),
    "anchor and alias": (
        "executors:\n- nvfuser: &options {cache: true}\n- fast: *options\n",
        [
            "2: &options is an anchor, which is not accepted; put text that begins with `&` in quotes",
            "3: *options is an alias, which is not accepted; put text that begins with `*` in quotes",
            "3: executors[1]: the options of 'fast' must be a mapping, `option: value`, not the text '*options'",
        ],
    ),
    "tag": (
        "executors:\n- !!python/object/apply:os.system [echo]\n",
        [
            "2: the tag !!python/object/apply:os.system is not accepted; put text that begins with `!` in quotes",
            "2: executors[0]: must be the name of an executor, or {name: options}, not a list",
        ],
    ),
    "character that begins nothing": (
        "executors: [@fast]\n",
        ["1: text that begins with `@` must be in quotes"],
    ),
    "a list as a name": (
        "cache: same input\n? [a, b]\n: c\n",
        ["2: a name must be text, not a list or a mapping"],
    ),
    "two documents": (
        "cache: same input\n---\ncache: same input\n",
        ["2: a second document begins here, and a configuration is one"],
    ),
    "control character": (
        "cache: same input\nextends: a\x07b\n",
        ["2: the character '\\x07' is not accepted"],
    ),
    "too deep": (
        "extends: " + "[" * 40 + "]" * 40 + "\n",
        ["1: cannot be read: nested more than 32 deep"],
    ),
    # --- all at once
    "problems of every kind": (
        "cach: 1\nexecutors:\n- nvfuser: {cach: true}\n- 3\n- nvfusr\nrecompile_limit: many\nrequires: [absent]\n",
        [
            "1: cach: unknown option; did you mean 'cache'?",
            "3: executors[0].nvfuser.cach: unknown option; did you mean 'cache'?",
            "4: executors[1]: must be the name of an executor, or {name: options}, not the number 3",
            "5: executors[2]: there is no executor 'nvfusr'; did you mean 'nvfuser'?",
            "6: recompile_limit: must be an integer, not the text 'many'",
            "7: requires[0]: absent is not installed; run: pip install 'absent'",
        ],
    ),
}
