"""A fuzzer of the command line: files as users might have them, mutated, and what must hold whatever a file says.

    make fuzz                                     two minutes of all kinds, one process, finds in out/fuzz/
    make fuzz ARGS='--minutes 10 --seed 7 --kinds kineto,nsys --jobs 2'
    make fuzz ARGS='--only 7:kineto:1234'         one input again, with what it prints
    python -m tests.fuzz.finds FOLDER...          finds again, from their folders; --keep: test_finds.py replays them

Input i of a kind under a seed is always the same, whatever ran before it. Inputs are structured (`documents`): a trace
is a tree of values, an nsys export a list of SQL statements, a table its lines; so that a mutator can say "a number is
10**400 here" and `minimise` can take away events, columns and letters until only the find is left.

    bases, kinds/      where inputs begin, and what is drawn for each kind: files, commands, planted secrets
    values, kineto, sql, damage        mutators
    target, oracles    one command in this process, and what must hold of what it did: a table, one function each
    worker, supervisor a process that tries inputs, and one that outlives its crashes, hangs and memory
    minimise, finds    delta debugging; folders of finds, and `finds/`, which test_finds.py replays

Why not hypothesis or atheris: atheris is guided by coverage of byte strings and needs a build of clang; most bytes are
no trace, and what is wrong here lies behind the reader. Hypothesis knows structure and shrinks better, but draws such
trees some ten times slower, and its inputs are no longer the same when a strategy changes elsewhere. Seeded `random` and
delta debugging are two hundred lines, and one core tries 200,000 inputs in two hours.
"""
