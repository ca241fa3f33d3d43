# ruff: noqa: TID252 (lazy_loader reads relative imports alone)
from .activity import live_page as live_page
from .activity import save_film as save_film
from .curves import fitness_curves as fitness_curves
from .curves import fronts as fronts
from .curves import species_stack as species_stack
from .drawing import draw_genome as draw_genome
from .drawing import draw_network as draw_network
from .evolution import plot_run as plot_run
from .heatmap import Heatmap as Heatmap
from .program import draw_program as draw_program
from .raster import draw_firing as draw_firing
from .slabs import draw_slabs as draw_slabs
