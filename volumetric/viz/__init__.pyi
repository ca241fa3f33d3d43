# ruff: noqa: TID252 (lazy_loader reads relative imports alone)
from .activity_film import save_film as save_film
from .heatmap import Heatmap as Heatmap
from .network_drawing import draw_genome as draw_genome
from .network_drawing import draw_network as draw_network
from .program_drawing import draw_program as draw_program
from .raster import draw_firing as draw_firing
from .run_curves import fitness_curves as fitness_curves
from .run_curves import fronts as fronts
from .run_curves import species_stack as species_stack
from .run_plots import plot_run as plot_run
from .slabs import draw_slabs as draw_slabs
from .training_curves import training_curves as training_curves
