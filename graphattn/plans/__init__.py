"""Plans: derivations of a graph for the backends, made once and cached; the graph does not depend
on them.
"""
