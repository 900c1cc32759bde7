"""The partition planner: how every operation of an expression is cut (EinDecomp)."""

from distarray.planner.eindecomp.graph import EinGraph, EinOp, Input, parse_expr
from distarray.planner.eindecomp.graph_files import parse_graph
from distarray.planner.eindecomp.plans import EinPlan, plan, plan_cost

__all__ = ["EinGraph", "EinOp", "EinPlan", "Input", "parse_expr", "parse_graph", "plan", "plan_cost"]
