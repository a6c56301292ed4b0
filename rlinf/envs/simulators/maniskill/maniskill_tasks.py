"""What each ManiSkill task asks for, in words; the key is the task's id.

Tasks that carry an instruction of their own, which may name the objects of the episode, are not listed.
"""

from __future__ import annotations

TASK_DESCRIPTIONS: dict[str, str] = {
    "LiftPegUpright-v1": "Stand the peg upright on the table.",
    "OpenCabinetDoor-v1": "Open the cabinet's door.",
    "OpenCabinetDrawer-v1": "Pull the cabinet's drawer open.",
    "PegInsertionSide-v1": "Pick up the peg and insert it sideways into the box's hole.",
    "PickCube-v1": "Pick up the cube and hold it at the goal.",
    "PickSingleYCB-v1": "Pick up the object and hold it at the goal.",
    "PlaceSphere-v1": "Pick up the sphere and place it into the bin.",
    "PlugCharger-v1": "Pick up the charger and plug it into the receptacle.",
    "PokeCube-v1": "Poke the cube with the peg.",
    "PullCube-v1": "Pull the cube to the goal.",
    "PullCubeTool-v1": "Grasp the L-shaped tool and pull the cube closer with it.",
    "PushCube-v1": "Push the cube to the goal.",
    "PushT-v1": "Push the T-shaped block onto its outline.",
    "RollBall-v1": "Roll the ball to the goal on the other side of the table.",
    "StackCube-v1": "Pick up the red cube and stack it on the green cube.",
    "StackPyramid-v1": "Place the first cube beside the second and stack the third on top of both.",
    "TurnFaucet-v1": "Turn the faucet on.",
    "TwoRobotPickCube-v1": "Pass the cube from the one robot to the other and hold it at the goal.",
    "TwoRobotStackCube-v1": "Stack the blue cube on the green cube at the goal, with both robots.",
}
