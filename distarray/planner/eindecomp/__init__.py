"""The partition planner: how every operation of an expression is cut (EinDecomp)."""

from distarray.planner.eindecomp.eingraph import EinGraph, EinOp, Input, parse_expr
from distarray.planner.eindecomp.einplans import EinPlan, plan, plan_cost
from distarray.planner.eindecomp.graph_files import parse_graph

__all__ = ["EinGraph", "EinOp", "EinPlan", "Input", "parse_expr", "parse_graph", "plan", "plan_cost"]
