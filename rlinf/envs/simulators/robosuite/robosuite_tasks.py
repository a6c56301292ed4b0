"""What each task of robosuite asks for, in words; the key is the task's name."""

from __future__ import annotations

from rlinf.config.schema.env import RobosuiteTask

TASK_DESCRIPTIONS: dict[RobosuiteTask, str] = {
    "Lift": "Lift the red cube.",
    "Stack": "Stack the red cube on the green cube.",
    "Door": "Open the door.",
    "PickPlace": "Put each object into its own bin.",
    "PickPlaceSingle": "Put the object into its bin.",
    "PickPlaceMilk": "Put the milk into its bin.",
    "PickPlaceBread": "Put the bread into its bin.",
    "PickPlaceCereal": "Put the cereal into its bin.",
    "PickPlaceCan": "Put the can into its bin.",
    "NutAssembly": "Put the square nut on the square peg and the round nut on the round peg.",
    "NutAssemblySingle": "Put the nut on its peg.",
    "NutAssemblySquare": "Put the square nut on the square peg.",
    "NutAssemblyRound": "Put the round nut on the round peg.",
    "TwoArmLift": "Lift the pot by its handles with both arms and keep it level.",
    "TwoArmPegInHole": "Put the peg of one arm into the hole of the other.",
    "TwoArmHandover": "Hand the hammer from the first arm to the second.",
}
