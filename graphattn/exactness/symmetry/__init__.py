"""``verify(model, symmetry=...)``: how far an output is from what a symmetry promises, and why.

The path of a call, file by file:

* ``arguments`` checks the arguments: a *structure* (``structure``), and a *model* (``model``) that is
  called with what it names.
* ``engine`` asks the others.
* ``moves`` are the symmetries: what each makes of a structure, and of an output of a known kind.
* ``measure`` runs the model on moved structures, and gives a row for each difference.
* ``diagnose`` tries after an error what explains it; ``report`` prints.
"""
