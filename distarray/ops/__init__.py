"""Operations on nodes, one file per subject: what a function checks, and the node that it makes.

A function takes whatever carries a node (`families.Array`), an array of the user's or an expression, and gives the same
kind back.
"""
