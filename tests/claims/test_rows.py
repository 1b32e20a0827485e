"""Where each row of MECHANISMS.md (what five source documents say of attention) is tested; each place is there."""

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
SCORES, SYMMETRY, REACH, LINEAR, OPERATIONS, STUDIES = (
    f"claims/test_{name}.py"
    for name in ("scores_and_softmax", "symmetry_and_parameters", "reach", "linear_attention", "operations", "studies")
)
ERRORS, CONV, LAYER, STACKS = (
    "claims/test_errors_of_the_sources.py",
    "claims/test_convolution.py",
    "nn/test_scores.py",
    "models/test_stacks.py",
)
ROWS = {
    1: (LAYER, "test_a_score_may_be_any_function_and_kappa_const_over_degree_is_mean_aggregation"),
    2: ("attention/test_semantics.py", "test_output_and_gradients_are_the_formulas"),
    3: ("attention/test_cases_b_precision.py", "test_b15_float64_agrees_between_all_plans"),
    4: (SCORES, "test_the_parameter_free_layer_is_softmax_of_the_gram_matrix"),
    5: (SCORES, "test_the_parameter_free_layer_is_softmax_of_the_gram_matrix"),
    6: (SCORES, "test_dot_products_respect_magnitude_and_sign_and_cosines_the_angle_alone"),
    7: (SCORES, "test_dot_products_respect_magnitude_and_sign_and_cosines_the_angle_alone"),
    8: (SCORES, "test_correlation_is_cosine_and_covariance_the_dot_product_only_of_centred_data"),
    9: ("attention/test_against_torch.py", "test_sdpa_with_a_mask"),
    10: (SCORES, "test_two_projections_are_one_bilinear_form"),
    11: (LAYER, "test_gatv2_is_an_additive_score"),
    12: (SCORES, "test_cold_attention_is_a_dictionary_and_hot_attention_an_average"),
    13: (SCORES, "test_entropy_rises_with_temperature"),
    14: (LINEAR, "test_causally_it_is_a_prefix_sum_the_recurrent_network_of_katharopoulos"),
    15: (SCORES, "test_softmax_is_a_distribution_over_in_edges_and_without_it_weights_explode"),
    17: ("nn/test_loaders.py", "test_from_torch"),
    18: (SYMMETRY, "test_keys_and_values_are_decoupled"),
    19: (SYMMETRY, "test_parameters_do_not_grow_with_the_number_of_nodes_and_the_attention_matrix_does"),
    20: ("models/test_hopfield.py", "test_a_step_is_attention_and_falls_along_the_energy"),
    21: (SCORES, "test_modern_hopfield_retrieval_is_a_step_of_cross_attention_and_lowers_the_energy"),
    22: ("models/test_hopfield.py", "test_modern_memories_hold_what_classical_ones_lose"),
    24: (SYMMETRY, "test_attention_has_fast_weights_and_a_linear_layer_slow_ones"),
    26: ("attention/test_properties.py", "test_any_call_is_the_formula"),
    27: (REACH, "test_the_graphs_of_encoder_and_decoder"),
    28: (REACH, "test_the_graphs_of_encoder_and_decoder"),
    29: (REACH, "test_the_graphs_of_encoder_and_decoder"),
    30: (REACH, "test_rows_are_queries_and_the_other_layout_is_the_transpose"),
    31: ("nn/test_graph_attention.py", "test_self_and_cross_attention"),
    32: ("attention/test_per_head.py", "test_equals_each_head_by_itself_with_gradients"),
    33: (SYMMETRY, "test_relabelling_nodes_and_edges_relabels_the_output"),
    34: (SYMMETRY, "test_a_node_is_invariant_to_the_order_of_what_it_reads"),
    35: (REACH, "test_longest_of_the_shortest_paths"),
    36: (REACH, "test_wavenet_hears_sixteen"),
    37: (CONV, "test_a_convolution_is_attention_with_a_head_for_each_offset"),
    38: ("graphs/test_builders_grid.py", "test_neighbourhood_is_nattens"),
    39: (CONV, "test_a_convolution_is_attention_with_a_head_for_each_offset"),
    40: (CONV, "test_a_shared_perceptron_is_attention_to_oneself_and_a_convolution_of_one"),
    41: ("graphs/test_builders_points.py", "test_knn_is_brute_force"),
    43: (REACH, "test_a_virtual_node_is_label_to_sequence_and_sequence_to_label"),
    44: ("nn/test_loaders.py", "test_from_pyg"),
    45: (REACH, "test_stacked_attention_mixes_k_hops_pairs_of_pairs"),
    46: (REACH, "test_attention_alone_averages_everything_away_and_residuals_keep_it"),
    47: (REACH, "test_distance_in_the_input_is_distance_in_the_features_for_convolutions_and_not_for_attention"),
    48: (REACH, "test_a_decoder_does_not_hear_the_future"),
    49: (SCORES, "test_a_mask_belongs_outside_the_scaling_and_only_minus_infinity_does_not_care"),
    50: (SYMMETRY, "test_transformer_and_average_pool_are_permutation_invariant"),
    51: ("nn/test_positions.py", "test_learned_adds_a_row_and_has_no_more_than_max_len"),
    52: (SCORES, "test_sines_of_a_later_position_are_a_turn_of_those_of_an_earlier"),
    53: ("nn/test_positions_transformers.py", "test_bias_of_t5"),
    54: ("nn/test_positions.py", "test_rotary_scores_depend_only_on_the_difference_of_positions"),
    55: ("graphs/test_builders_grid.py", "test_cells_are_swins_rolled_and_masked_windows"),
    56: ("graphs/test_builders_sequence.py", "test_prefix"),
    57: (SYMMETRY, "test_heads_do_not_tell_mary_from_susan_whatever_their_weights"),
    58: ("nn/test_loaders.py", "test_from_torch"),
    59: (OPERATIONS, "test_multi_head_attention_is_four_matrix_products"),
    60: (SYMMETRY, "test_any_number_of_heads_has_the_same_parameters"),
    61: (SYMMETRY, "test_attention_is_linear_in_the_values_and_not_in_its_input"),
    62: (SYMMETRY, "test_heads_attend_differently_and_their_mean_is_none_of_them"),
    63: (ERRORS, "test_source_b_normalises_over_channels_and_space_layer_norm_is_over_the_features_of_a_token"),
    64: (SYMMETRY, "test_without_attention_a_block_is_its_residual"),
    65: (STACKS, "test_encoder_layer"),
    66: (STACKS, "test_the_whole_transformer"),
    67: (ERRORS, "test_source_c_takes_keys_and_queries_from_the_encoder_keys_and_values_come_from_it"),
    68: (ERRORS, "test_three_attentions_of_the_transformer_are_one_class_on_three_graphs"),
    69: (STACKS, "test_experts_chosen_all_are_a_dense_mixture_and_order_does_not_matter"),
    70: ("models/test_vit.py", "test_classifier"),
    71: (SYMMETRY, "test_pointnet_is_a_graph_of_self_loops_and_a_pool_by_the_largest"),
    72: (SYMMETRY, "test_a_row_of_an_embedding_is_a_one_hot_vector_times_its_matrix"),
    73: ("models/test_gpt.py", "test_gpt2_of_transformers"),
    74: ("models/test_generation.py", "test_one_beam_is_greedy"),
    75: (STACKS, "test_a_cache_gives_what_the_whole_gives"),
    76: ("models/test_rnn.py", "test_the_bottleneck_forgets_long_sequences_and_attention_does_not"),
    77: ("models/test_rnn.py", "test_bahdanau_reads_by_the_state_before_and_luong_by_its_own"),
    78: ("models/test_rnn.py", "test_luong_is_cross_attention_of_one_head"),
    79: (REACH, "test_longest_of_the_shortest_paths"),
    80: (REACH, "test_convolution_recurrence_and_attention_are_layers_of_one_schedule"),
    81: (SCORES, "test_a_vector_times_a_hundred_is_one_hot"),
    82: (SCORES, "test_unscaled_scores_saturate_softmax_and_the_root_of_d_prevents_it"),
    83: (SCORES, "test_the_diagonal_is_largest_for_unit_vectors_and_not_in_general"),
    84: (STUDIES, "test_one_head_averages_two_relations_that_two_heads_keep_apart"),
    85: (STUDIES, "test_a_bias_to_what_is_near_inhibits_a_far_task_and_is_needed_where_examples_are_few"),
    86: (OPERATIONS, "test_a_separable_convolution_costs_what_attention_and_a_shared_perceptron_cost"),
    87: (REACH, "test_attention_alone_averages_everything_away_and_residuals_keep_it"),
    88: ("viz/test_viz_heads.py", "test_lines_run_from_targets_to_sources_and_are_coloured_by_weight"),
    89: ("viz/test_viz_heads.py", "test_matrices_are_the_weights"),
    90: ("viz/test_viz_receptive.py", "test_grid_panels_show_what_is_heard_after_each_layer"),
    91: (STUDIES, "test_flies_moves_to_soars_or_to_insects_with_its_context"),
    92: (STUDIES, "test_bears_has_the_role_of_its_place_by_positions_and_projections"),
    93: (SYMMETRY, "test_transformer_and_average_pool_are_permutation_invariant"),
    94: ("viz/test_viz_receptive.py", "test_rows_hold_every_path_to_the_target"),
}
ELSEWHERE = {
    16: "a remark: weights are no calibrated probabilities",
    23: "examples/09: the alignment of a reversed text",
    25: "a timing: reported by the bench, not asserted",
    42: "a picture of the demo",
}


@cache
def names_of(path: str) -> set[str]:
    tree = ast.parse((TESTS / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", ROWS)
def test_the_row_is_tested_where_it_says(row):
    path, name = ROWS[row]
    assert name in names_of(path)


def test_every_row_has_its_place():
    assert sorted([*ROWS, *ELSEWHERE]) == list(range(1, 95))
