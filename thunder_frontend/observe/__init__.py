"""Observe what a program reads and writes in Python while it is recorded: guards, and writes to repeat.

The `Observer` is called for each Python frame that the program enters (`frame_hook`), and for calls of builtin
functions (`builtin_calls`, `external_calls`). It takes the names in the bytecode of the frame (`abstract_stack`,
`bytecode`, `code_names`) and reads them from the objects that the frame reaches by such names: the function, its
arguments, globals and closures (`frame_reads`, `following`, `class_reads`). Each object that is read becomes a `Node`
with a copy of its contents (`heap`), and a guard (`object_guards`), which is a row of `thunder_core.checks`.

What objects store is a table: a row of `contents.NodeKind` has the classes of a kind of objects and its `Table`, how to
read, write and address attributes, items, parameters or bytes. ``Table.changes`` compares an object with its first
visit. Its results are the writes that the compiled program repeats and, in the other direction, those that undo the
recording (`writes`). A row also names the methods that guard and read an object, so that a new kind of object is a new
row. Without more code, its class and each attribute that the program reads are guarded.

Where code may delete an attribute, what lies behind it is guarded too (`uncovered_reads`). Classes that the program
makes have no guards (`made_classes`).

Further subjects: paths of tensors (`tensor_index`) and their properties (`tensor_facts`); objects that the program
stores where other code reads them (`stored_objects`); the memory of buffers (`buffers`); state without a path, such as
random generators and iterators (`hidden_state`, `torch_generators`); code that runs with the compiled program only
(`outside_code`); lookup methods that guards may call
(`lookup_methods`).

`StandIns` replace Python numbers that vary between calls where they are stored: an int by a size, a float by a number
of the trace.
"""
