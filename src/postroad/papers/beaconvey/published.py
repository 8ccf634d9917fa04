"""What the paper publishes: Tables 3 to 5, and what the text says of Figures 4 to 8."""

from __future__ import annotations

from dataclasses import dataclass

OVERLAYS = ("SL", "S", "L", "-")

# Per system: overhead at 1K and 10K, average path length at 1K and 10K, all against Scribe(-).
Ratios = dict[str, tuple[float, float, float, float]]

TABLE_3: Ratios = {
    "BeaConvey(SL, Pie)": (0.266, 0.449, 0.700, 0.968),
    "BeaConvey(S, Pie)": (0.355, 0.612, 0.902, 1.629),
    "BeaConvey(L, Pie)": (0.683, 0.827, 0.780, 1.15),
    "BeaConvey(-, Pie)": (0.908, 1.127, 1.07, 2.088),
    "iScribe(SL)": (0.427, 0.636, 0.992, 1.035),
    "iScribe(S)": (0.428, 0.591, 0.975, 1.007),
    "iScribe(L)": (0.993, 1.109, 0.987, 1.024),
    "iScribe(-)": (1.007, 1.049, 1.004, 0.9999),
    "Scribe(SL)": (0.914, 0.908, 1.014, 1.040),
    "Scribe(S)": (1.05, 1.024, 0.976, 1.007),
    "Scribe(L)": (0.675, 0.819, 0.985, 1.031),
    "Scribe(-)": (1.0, 1.0, 1.0, 1.0),
}
TABLE_4: Ratios = {
    "BeaConvey(SL, Pie)": (0.573, 0.748, 0.902, 1.131),
    "BeaConvey(S, Pie)": (0.617, 0.797, 1.273, 1.252),
    "BeaConvey(L, Pie)": (0.757, 1.018, 0.931, 1.121),
    "BeaConvey(-, Pie)": (0.853, 1.17, 1.357, 1.310),
    "iScribe(SL)": (0.664, 0.768, 1.041, 1.058),
    "iScribe(S)": (0.596, 0.671, 1.020, 1.001),
    "iScribe(L)": (0.913, 1.167, 1.007, 1.040),
    "iScribe(-)": (0.817, 1.016, 1.008, 1.004),
    "Scribe(SL)": (0.853, 0.894, 1.035, 1.051),
    "Scribe(S)": (1.096, 1.012, 1.019, 0.999),
    "Scribe(L)": (0.714, 0.841, 0.996, 1.040),
    "Scribe(-)": (1.0, 1.0, 1.0, 1.0),
}
TABLE_5_FACEBOOK: Ratios = {
    "BeaConvey(SL, Pie)": (0.266, 0.449, 0.700, 0.968),
    "BeaConvey(SL, Po)": (0.182, 0.319, 0.794, 1.300),
    "BeaConvey(SL, Pal)": (0.341, 0.557, 0.729, 0.981),
}
TABLE_5_TWITTER: Ratios = {
    "BeaConvey(SL, Pie)": (0.573, 0.748, 0.902, 1.131),
    "BeaConvey(SL, Po)": (0.359, 0.489, 1.145, 1.688),
    "BeaConvey(SL, Pal)": (0.712, 0.917, 0.928, 1.179),
}
TABLES = {
    "3": ("fb", TABLE_3),
    "4": ("tw", TABLE_4),
    "5 (Facebook)": ("fb", TABLE_5_FACEBOOK),
    "5 (Twitter)": ("tw", TABLE_5_TWITTER),
}


@dataclass(frozen=True)
class Stated:
    """A number that the text gives for a figure: the mean over its points, or at one of them."""

    figure: str
    workload: str
    system: str
    metric: str  # overhead, path_mean, path_max
    against_scribe: bool
    paper: float
    topics: int | None = None


STATED = [
    Stated("4", "zipf", "BeaConvey(SL, Pie)", "overhead", True, 0.594),
    Stated("5", "zipf", "BeaConvey(SL, Pie)", "path_mean", False, 4.88),
    Stated("5", "zipf", "Scribe(-)", "path_mean", False, 7.20),
    Stated("6", "unif", "BeaConvey(SL, Pie)", "overhead", True, 0.379, 10_000),
    Stated("6", "unif", "BeaConvey(L, Pie)", "overhead", True, 0.585),
    Stated("6", "unif", "BeaConvey(S, Pie)", "overhead", True, 0.653),
    Stated("7", "unif", "BeaConvey(SL, Pie)", "path_mean", True, 0.5, 10_000),
    Stated("8", "grow", "BeaConvey(SL, Po)", "overhead", True, 0.592),
    Stated("8", "grow", "BeaConvey(SL, Pal)", "overhead", True, 1.006),
    Stated("8", "grow", "BeaConvey(SL, Pie)", "overhead", True, 0.835),
    Stated("8", "grow", "BeaConvey(SL, Po)", "path_mean", True, 1.96),
    Stated("8", "grow", "BeaConvey(SL, Pal)", "path_mean", True, 1.3),
    Stated("8", "grow", "BeaConvey(SL, Pie)", "path_mean", True, 1.3),
    Stated("8", "grow", "BeaConvey(SL, Po)", "path_max", True, 6.61),
    Stated("8", "grow", "BeaConvey(SL, Pal)", "path_max", True, 3.35),
    Stated("8", "grow", "BeaConvey(SL, Pie)", "path_max", True, 3.80),
]
