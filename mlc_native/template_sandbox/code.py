"""How a chat template becomes code: what may be long or large is a call of the environment.

jinja2's own code applies Python's operators to whatever a template holds. TemplateCode writes calls
of BoundedEnvironment (environment.py) instead, and ``count_iterations`` puts a call into every
loop and macro.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame, operators
from jinja2.visitor import NodeTransformer

_TICK = "tick"


def count_iterations(tree: nodes.Template) -> nodes.Template:
    """Lets each iteration and each call of a macro call ``tick``."""
    counted: nodes.Template = _Iterations().visit(tree)
    return counted


class _Iterations(NodeTransformer):
    def _tick(self, node: nodes.Node) -> nodes.Call:
        function = nodes.EnvironmentAttribute(_TICK, lineno=node.lineno)
        return nodes.Call(function, [], [], None, None, lineno=node.lineno)

    def _tick_first(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(self._tick(node), lineno=node.lineno))
        counted: nodes.Node = node
        return counted

    def visit_For(self, node: nodes.For) -> nodes.Node:
        if node.test is not None:  # items that the test rejects never reach the body
            node.test = nodes.And(self._tick(node), node.test, lineno=node.lineno)
        return self._tick_first(node)

    visit_Macro = visit_CallBlock = _tick_first


def _is_scalar(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Const)


def _calls(method: str, *parts: str) -> Callable[[Any, Any, Frame], None]:
    """Writes ``environment.method(...)`` with these parts of a node."""

    def visit(self: TemplateCode, node: Any, frame: Frame) -> None:
        self.write_call(method, [getattr(node, part) for part in parts], frame)

    return visit


class TemplateCode(CodeGenerator):
    """The code of a BoundedEnvironment's templates."""

    def write_call(self, method: str, arguments: list[Any], frame: Frame, first: str = "") -> None:
        """Writes a call of the environment."""
        self.write(f"environment.{method}({first}")
        for argument in arguments:
            self.visit(argument, frame)
            self.write(", ")
        self.write(")")

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        # jinja2 would compute constants by itself, and take what shows a list for the template's
        # own text.
        if not isinstance(node, (nodes.TemplateData, nodes.Const)):
            raise nodes.Impossible
        text: str = super()._output_child_to_const(node, frame, finalize)
        return text

    visit_Add = _calls("add", "left", "right")
    visit_Sub = _calls("subtract", "left", "right")
    visit_Mul = _calls("multiply", "left", "right")
    visit_Mod = _calls("modulo", "left", "right")
    visit_Pow = _calls("power", "left", "right")

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write_call("concatenate", node.nodes, frame)

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:
        if len(node.ops) > 1:  # 0 < a < b
            self.write("(")
            self.write_call("scalar", [node.expr], frame)
            for each in node.ops:
                self.write(f" {operators[each.op]} ")
                self.write_call("scalar", [each.expr], frame)
            self.write(")")
            return
        (operand,) = node.ops
        if operand.op in ("in", "notin"):
            self.write("(not " if operand.op == "notin" else "(")
            self.write_call("contains", [node.expr, operand.expr], frame)
            self.write(")")
        elif _is_scalar(node.expr) or _is_scalar(operand.expr):
            super().visit_Compare(node, frame)
        else:
            self.write_call("compare", [node.expr, operand.expr], frame, f"{operand.op!r}, ")

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        if isinstance(node.arg, nodes.Slice):
            bounds = (node.arg.start, node.arg.stop, node.arg.step)
            none = nodes.Const(None)
            self.write_call("cut", [node.node, *(bound or none for bound in bounds)], frame)
        elif _is_scalar(node.arg):
            self.write_call("getitem", [node.node, node.arg], frame)
        else:
            self.write("environment.getitem(")
            self.visit(node.node, frame)
            self.write(", ")
            self.write_call("key", [node.arg], frame)
            self.write(")")

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        self.write("{")
        for pair in node.items:
            if _is_scalar(pair.key):
                self.visit(pair.key, frame)
            else:
                self.write_call("key", [pair.key], frame)
            self.write(": ")
            self.visit(pair.value, frame)
            self.write(", ")
        self.write("}")

    def visit_Call(self, node: nodes.Call, frame: Frame, forward_caller: bool = False) -> None:
        if isinstance(node.node, nodes.EnvironmentAttribute) and node.node.name == _TICK:
            self.write("environment.tick()")
        else:
            super().visit_Call(node, frame, forward_caller=forward_caller)
