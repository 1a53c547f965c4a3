"""Payments in the syntax tree of a template."""

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from .template_budget import STEP_COST, checked_number


class TemplateMeter(NodeTransformer):
    """Puts payments where the sandbox has no hook of its own.

    Loops, macros and call blocks pay for each turn through their bodies (``turn`` of the
    environment), the two sides of a comparison and the keys of a dict for being looked through
    (``paid``), a slice for its length (``copied``); ``~`` becomes a call of ``concat_text``.
    """

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802 - Jinja's interface
        """Charge each turn, and each item that the loop's own condition looks at."""
        self.generic_visit(node)
        if node.test is not None:
            node.test = nodes.And(_turn(STEP_COST, node), node.test, lineno=node.lineno)
        _charge_body(node, node.body)
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Macro:  # noqa: N802 - Jinja's interface
        """Charge each call for the literal text in the body."""
        self.generic_visit(node)
        _charge_body(node, node.body)
        return node

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.CallBlock:  # noqa: N802
        """Charge each use of the block for the literal text in it."""
        self.generic_visit(node)
        _charge_body(node, node.body)
        return node

    def visit_Const(self, node: nodes.Const) -> nodes.Const:  # noqa: N802 - Jinja's interface
        """Refuse long numbers."""
        checked_number(node.value)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Call:  # noqa: N802 - Jinja's interface
        """Let the environment join."""
        self.generic_visit(node)
        return _call("concat_text", node.nodes, node)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:  # noqa: N802 - Jinja's interface
        """Charge for a slice; single items go through the environment anyway."""
        self.generic_visit(node)
        return _call("copied", [node], node) if isinstance(node.arg, nodes.Slice) else node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Compare:  # noqa: N802
        """Charge for the left side."""
        self.generic_visit(node)
        node.expr = _paid(node.expr)
        return node

    def visit_Operand(self, node: nodes.Operand) -> nodes.Operand:  # noqa: N802
        """Charge for a right side."""
        self.generic_visit(node)
        node.expr = _paid(node.expr)
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Pair:  # noqa: N802 - Jinja's interface
        """Charge for hashing a key."""
        self.generic_visit(node)
        node.key = _paid(node.key)
        return node


def _charge_body(node: nodes.Node, body: list[nodes.Node]) -> None:
    """Count a step and the literal text, which is written without asking the environment."""
    literal = sum(len(data.data) for item in body for data in item.find_all(nodes.TemplateData))
    body.insert(0, nodes.ExprStmt(_turn(STEP_COST + literal, node), lineno=node.lineno))


def _turn(cost: int, node: nodes.Node) -> nodes.Call:
    return _call("turn", [nodes.Const(cost, lineno=node.lineno)], node)


def _paid(expression: nodes.Expr) -> nodes.Expr:
    if isinstance(expression, nodes.Const):
        return expression
    return _call("paid", [expression], expression)


def _call(name: str, args: list[nodes.Expr], node: nodes.Node) -> nodes.Call:
    # An attribute of the environment is out of reach for templates, a name could be set anew.
    method = nodes.EnvironmentAttribute(name, lineno=node.lineno)
    return nodes.Call(method, args, [], None, None, lineno=node.lineno)
