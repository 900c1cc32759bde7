"""Plans of EinGraphs, on paper: what `dx.plan`, graph files and orders of contractions ask (EinDecomp).

Expressions that are to run are planned by `distarray.planner.partition`, which takes from here the paper's counts, the
lower bounds and the elimination.
"""

from distarray.planner.eindecomp.eingraph import EinGraph, EinOp, Input, parse_expr
from distarray.planner.eindecomp.einplans import EinPlan, plan, plan_cost
from distarray.planner.eindecomp.graph_files import parse_graph

__all__ = ["EinGraph", "EinOp", "EinPlan", "Input", "parse_expr", "parse_graph", "plan", "plan_cost"]
