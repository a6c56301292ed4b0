"""Vision towers have the sizes and names of the published ones; the golden tests compare what they compute."""

from __future__ import annotations

import pytest
import torch

from rlinf.models.vla.vision_tower import TOWERS, TowerShape, VisionTower, tower_shape

TINY = TowerShape(8, 3, 2, patch_size=4, reg_tokens=2, init_values=1e-5)


def test_published_towers_have_their_parameters() -> None:
    """Counts of timm's models of these names, without classifiers, at 224 pixels."""
    counts = {"vit_large_patch14_reg4_dinov2.lvd142m": 303_230_976, "vit_so400m_patch14_siglip_224": 427_680_704}
    with torch.device("meta"):
        for name, count in counts.items():
            tower = VisionTower(TOWERS[name], 224)
            assert sum(parameter.numel() for parameter in tower.parameters()) == count


def test_what_follows_the_last_block_but_one_is_not_used() -> None:
    tower, pixels = VisionTower(TINY, 12).eval(), torch.randn(2, 3, 12, 12)
    features = tower(pixels)
    assert features.shape == (2, 9, 8)
    with torch.no_grad():
        for module in (tower.blocks[-1], tower.norm):
            for parameter in module.parameters():
                parameter.fill_(float("nan"))
    assert torch.equal(tower(pixels), features)
    frozen = {name.split(".")[0] for name, parameter in tower.named_parameters() if not parameter.requires_grad}
    assert frozen == {"blocks", "norm"}


def test_patches_keep_their_places() -> None:
    tower = VisionTower(TINY, 12).eval()
    with torch.no_grad():
        assert tower.reg_token is not None
        tower.pos_embed.normal_()
    image = torch.zeros(1, 3, 12, 12)
    changed = image.clone()
    changed[..., 0:4, 4:8] = 5.0
    moved = (tower(image) - tower(changed)).abs().sum(-1)[0]
    assert int(moved.argmax()) == 1


def test_towers_of_other_sizes_have_arguments() -> None:
    assert tower_shape("mine", {"embed_dim": 8, "depth": 3, "num_heads": 2}) == TowerShape(8, 3, 2)
    with pytest.raises(KeyError):
        tower_shape("mine", None)
