"""Source code without its layout: what a key of trials depends on."""

import ast
import textwrap


def syntax_of(text: str) -> str:
    """Statements in one layout, without comments and docstrings; text that cannot be parsed as is.

    Example:
        >>> syntax_of("def f(x):  # twice\\n    'Double.'\\n    return (2 *\\n x)")
        'def f(x):\\n    return 2 * x'
    """
    try:
        tree = ast.parse(textwrap.dedent(text))
    except SyntaxError:  # a lambda within a call
        return text
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            _remove_docstring(node)
    return ast.unparse(tree)


def _remove_docstring(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef,
) -> None:
    if ast.get_docstring(node, clean=False) is None:
        return
    del node.body[0]
    if not node.body and not isinstance(node, ast.Module):
        node.body.append(ast.Pass())
