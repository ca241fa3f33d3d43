"""Modules that changed their names: their old paths work for one version, with a warning (`moved_modules`)."""

from __future__ import annotations

TYPE_CHECKING = False  # as in `typing`, whose import would take half the time of `import volumetric`
if TYPE_CHECKING:
    from typing import Final

RENAMED: Final = {
    "analysis": "evaluation:scoring",
    "base": "keywords:call_errors moved:moved_modules own_code:caller_location tables:config_tables",
    "bench": "report:bench_report run:case_runs tables:bench_tables",
    "bench.serve": "run:load_runs",
    "builders": "fold:fold_batchnorm",
    "cli": (
        "evolving:evolve_job remote:remote_conversation run_out:run_outputs streams:stdio talk:chat_history "
        "targets:overwriting typed:line_input"
    ),
    "clocked": (
        "clocks:layer_clocks learning:tick_learning local:local_learning online:online_learning "
        "program:window_program stream:clocked_stream trails:target_state wave:target_schedule"
    ),
    "detect": (
        "blocks:layer_groups chains:layer_chain families:family_fit fills:parameter_fills "
        "modules:single_layers opening:open_unconfigured order:layer_order recurrent:recurrent_layers "
        "respelled:renamed_tensors stack:image_network transformer:transformer_encoder tree:module_tree "
        "values:config_values"
    ),
    "devices": "open:named_devices reference:reference_device",
    "devices.cpu": (
        "between:subgraph_steps blocks:block_panels cache:kv_cache call:control_block "
        "compiling:compile_operations cores:cpu_count decoding:greedy_loop governor:thread_control "
        "program:row_programs resident:resident_weights running:call_runner settings:row_settings "
        "state:cpu_state steps:step_builder table:step_table team:thread_pool"
    ),
    "devices.cpu.graph": (
        "blocks:blocked_steps crossing:cross_attention device:graphs distances:distance_attention "
        "drafting:build_steps edges:edge_attention images:image_windows joining:gemm_sums nodes:fused_cells "
        "prepared:single_input_call products:gemm_steps program:cpu_program samples:convolution_by_samples "
        "skipping:merged_predicates steps:graph_rules views:shared_storage windows:convolution_by_windows"
    ),
    "devices.cpu.kernels": (
        "append:rope_kv_append cells:row_cells emit:llvm_emitter forms:matmul_dispatch "
        "formulas:formula_kernels lanes:masked_load likeliest:argmax memory:memory_access mixing:gates "
        "parts:inner_kernels pieces:ragged rows:row_operations steps:step_words streams:splitmix64 "
        "target:cpu_target tiles:panel_microkernels tiny:denormals walk:run_table"
    ),
    "devices.cpu.kernels.amx": "allowed:amx_support layout:amx_scratch product:matrix_product tiles:amx_tiles",
    "devices.cpu.kernels.blocks": "codes:unpack_codes lookup:read_codes retile:retile_codes",
    "devices.cpu.kernels.graph": (
        "blocks:run_blocked crossing:cross_attention curves:unary distances:distance_attention dots:gemm_nt "
        "edges:edge_attention moving:strided_copies nodes:fused_cells rows:softmaxes "
        "sequences:recurrent_steps shares:thread_shares strips:gemv taps:conv_taps tiles:gemm_microkernels "
        "weighing:weighted_sums"
    ),
    "devices.cpu.kernels.mixtures": "each:each_expert routing:expert_routes",
    "devices.cpu.kernels.sampling": "layout:row_scratch",
    "devices.cpu.kernels.scans": "conv:causal_conv_kernel norm:grouped_norm selective:selective_scan_kernel",
    "devices.cpu.rows": "draft:row_step_builder",
    "devices.gpu": (
        "attending:paged_attention calls:call_schedule commands:gpu_commands context:gpu_context "
        "cores:gpu_subgraphs decoding:token_loop drawing:draw_plans fixed:fixed_states "
        "native:native_executor owned:owned_buffers pages:page_pool picking:token_picks record:encode "
        "recording:command_list recordings:recording_cache repeated:repeated_calls residency:weight_buffers "
        "results:call_outputs room:row_limits rotation:rope_tables scratch:value_buffers slots:buffer_names "
        "state:gpu_state tuning:autotune tunings:tuning_cache"
    ),
    "devices.gpu.graph": (
        "formulas:formula_fusion fusing:read_fusion groups:joined_groups joining:joined_sums "
        "packing:packed_tensors program:gpu_program record:encode_graph upload:input_upload"
    ),
    "devices.gpu.kernels": (
        "blocks:block_layout drawing:token_draw formats:weight_formats guards:row_predicate "
        "moves:subgraph_moves stacks:matrix_stacks tiles:gemm_tiles"
    ),
    "devices.gpu.kernels.graph": (
        "crossing:cross_attention edges:edge_attention launch:kernel_launch moving:strided_copies "
        "product:grouped_gemm rows:row_kernels table:kernel_table"
    ),
    "devices.gpu.shaders": "formulas:wgsl_formulas rounds:loop_bounds",
    "dtypes": "scaled:scaled_rows tables:table_dtypes",
    "dtypes.blocks": "fives:five_bit fours:four_bit search:scale_search threes:three_bit",
    "evolution": (
        "checkpoint:genome_checkpoint config:evolution_config going_on:resume_checks "
        "job:evolution_job linked:linked_pool run:generation_run"
    ),
    "evolution.grids": (
        "checkpoint:grid_checkpoint config:grid_config crossover:grid_crossover genome:grid_genome "
        "makers:layer_factories mutate:grid_mutation population:grid_population"
    ),
    "evolution.kernels": "crossover:genome_crossover genomes:genome_kernels",
    "evolution.kernels.neat": "linked:linked_genomes",
    "evolution.problems": "samples:sample_problem table:table_problem",
    "evolution.programs": (
        "change:program_change clocks:clock_genes crossover:program_crossover edges:edge_genes "
        "masks:mask_genes mutate:program_mutation regions:region_genes"
    ),
    "fabric": "blueprint:fabric_blueprint nodes:node_edits tables:fabric_tables",
    "fabric.layer": (
        "cells:cell_steps declared:cell_populations edges:edge_rules emit:emit_fabric facts:node_facts "
        "graphs:node_graphs nodes:node_entries places:node_sets reach:node_latency spec:fabric_layer"
    ),
    "formula": "functions:unary_functions pairs:binary_functions writing:statements",
    "generate": (
        "adapters:lora_adapters batch:batch_stream comparison:model_comparison drafting:drafters "
        "events:token_events held:session_state hidden:hidden_states info:model_info masks:masked_tokens "
        "memory:process_memory opening:load_model predicting:sample_predictions randoms:rng_stream "
        "request:sampling_request stops:stop_texts stream:token_stream"
    ),
    "generate.scheduling": (
        "guesses:speculation job:jobs live:generation_sequence pace:prefill_budget prefixes:prefix_cache "
        "rounds:device_calls seats:batch_slots stats:scheduler_stats waiting:waiting_queue"
    ),
    "graph": (
        "chains:sum_chains device:graph_device emitting:expression_nodes experts:expert_fusion "
        "frozen:constant_folding guards:predicates ids:id_ranges layout:kernel_axes "
        "open_rows:open_interpreter passes:cleanup_passes products:flops programs:program_cache "
        "rewriting:rewriter side_by_side:batching stacks:parameter_stacks state:state_spec "
        "unroll:unroll_scans"
    ),
    "graph.numeric": (
        "attention:attention_mask cells:numpy_cells formulas:numpy_formulas largest:keep_largest "
        "noise:counter_noise windows:image_windows"
    ),
    "graph.operations": (
        "base:operation crossing:cross_attention distances:distance_attention edges:edge_attention "
        "hoisting:scan_hoisting moving:data_movement weighing:weighted_rows"
    ),
    "layers": (
        "base:layer_spec channels:channel_params checks:field_checks fresh:initial_values nodes:node_layer "
        "places:attention_state repeat:repeat_body scope:emit_scope"
    ),
    "layers.scaffolds": "base:scaffold",
    "loaders": (
        "chain:network_builder chat:chat_template convert:convert_model experts:expert_layers "
        "hub:model_location mapped:mapped_file model:loaded_model names:name_rules native:native_checkpoint "
        "nearest:nearest_family npz:npz_file quantise:target_schemes rows_apart:numbered_rows "
        "sentence:sentence_modules source:tensor_source tied:tied_heads tokenizer_guard:tokenizer_errors"
    ),
    "loaders.calibration": (
        "budget:bit_budget feedback:error_feedback levels:code_levels passes:quantising_run "
        "scales:scale_search walk:numpy_run"
    ),
    "loaders.quantised": "base:quantised_source",
    "network": "weights:weight_store",
    "observe": "activity:recorder events:layer_events records:observers",
    "program": "compare:program_diff exported:canvas_export imported:canvas_import wiring:topologies",
    "program.compiling": ("clocks:clock_folding liveness:region_liveness passes:compile_passes report:compile_report"),
    "program.layer": (
        "clocks:emit_clocks declared:program_declaration dispatch:edge_dispatch emit:emit_program "
        "facts:program_facts held:constraint_checks learning:region_learning masks:edge_masks "
        "names:name_checks parameters:program_params plan:dispatch_plan reach:reachability spec:program_layer "
        "targets:target_writes tasks:edge_tasks watched:watch_outputs"
    ),
    "program.layer.attention": (
        "base:rule_base by_heads:head_rules composed:composed_rules frequencies:fft_rules heads:head_ops "
        "moved:row_rules scanned:scan_rules"
    ),
    "run": (
        "adapted:adapted_executable batch:call_batch held:kv_value kept:stream_buffers narrowing:regroup "
        "overlaid:merged_lora profile:step_times sealed:checked_blob sharing:shared_weights "
        "state:sequence_state"
    ),
    "run.graph": (
        "cores:subgraphs faults:nonfinite_graphs network:network_graph on_rows:row_nodes segments:partition "
        "targets:target_graphs training:training_graphs"
    ),
    "run.streams": (
        "chunks:stream_chunks living:node_masks marks:stream_io moved:migration resident:resident_stream "
        "rows:row_stream"
    ),
    "serve": (
        "answers:output_parser channels:harmony completing:respond filling:fill_in_middle "
        "forms:answer_grammar opening:model_opening run:server shapes:completion_answers told:answer_fields "
        "trials:grammar_processes"
    ),
    "serve.fields": (
        "chat:chat_request completion:completion_request elsewhere:foreign_fields embedding:embedding_request "
        "response:response_request sampled:sampling_fields tokens:token_requests"
    ),
    "serve.responses": "asked:chat_conversion output:items shape:answer",
    "serve.tools": (
        "asked:request_tools families:call_form_families form:call_form history:call_history "
        "numbered:numbered_texts parameters:element_arguments reader:call_reader"
    ),
    "train": (
        "backprop:backprop_credit by_output:output_losses by_port:port_rows carried:tbptt "
        "checkpoint:training_checkpoint clocked:ticked_time config:training_config "
        "converting:coercion device:device_learner events:training_events faults:fault_finder "
        "fitting:target_checks npz:npz_arrays objective:prepared_batch "
        "online:online_credit open:learner_opening own_loss:graph_loss sequences:clocked_sequences "
        "subject:trainable targets:target_credit trained:trained_arrays watching:layer_statistics "
        "whole:whole_batches windows:stream_windows"
    ),
    "train.memory": "base:memory_task baselines:memory_baselines",
    "train.pursuit": "baselines:reference_answers",
    "viz": (
        "activity:activity_film curves:run_curves drawing:network_drawing evolution:run_plots program:program_drawing"
    ),
}
"""Package, without `volumetric.` → former and present names of its modules, ``former:present``."""


def present_name(path: str) -> str | None:
    """Return the path of the module that was at `path`; None if no module was."""
    package, _, former = path.rpartition(".")
    pairs = RENAMED.get(package.removeprefix("volumetric."), "").split()
    present = dict(pair.split(":") for pair in pairs).get(former)
    return None if present is None else f"{package}.{present}"
