"""Presets: well-known experiments, each run by its name, with published rows beside the measured ones."""

from collections.abc import Mapping

from corelane.plugins.lab.presets import beside_batch, points
from corelane.plugins.lab.presets.preset import Preset, PresetOutcome, Stage

__all__ = ["PRESETS", "Preset", "PresetOutcome", "Stage"]

#: All presets, by name.
PRESETS: Mapping[str, Preset] = {preset.name: preset for preset in (*points.PRESETS, *beside_batch.PRESETS)}
