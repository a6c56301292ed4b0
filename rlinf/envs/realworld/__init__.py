"""Robots: the client that speaks to one, its stand-in, and the environment that both of them drive.

Imports what ``rlinf.envs`` may. A lab implements ``FrankaClient`` for its own controller and names it in the recipe's
``env.*.client``; everything else, safety limits included, is the same for the stand-in and for a robot.
"""
