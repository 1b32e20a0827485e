"""Where each row of MECHANISMS.md (what five source documents say of attention) is tested; each place is there.

A place is ``room/file::test``, without the prefix ``test_`` of file and test.
"""

import ast
from functools import cache
from itertools import pairwise
from pathlib import Path

TESTS = Path(__file__).parent.parent
ROWS = """
1   nn/scores::a_score_may_be_any_function_and_kappa_const_over_degree_is_mean_aggregation
2   attention/semantics::output_and_gradients_are_the_formulas
3   attention/semantics::output_and_gradients_are_the_formulas
    attention/cases_b_precision::b15_float64_agrees_between_all_plans
4   claims/scores_and_softmax::the_parameter_free_layer_is_softmax_of_the_gram_matrix
5   claims/scores_and_softmax::the_parameter_free_layer_is_softmax_of_the_gram_matrix
6   claims/scores_and_softmax::dot_products_respect_magnitude_and_sign_and_cosines_the_angle_alone
    nn/positions_transformers::bias_of_swin_v2_in_their_attention
7   claims/scores_and_softmax::dot_products_respect_magnitude_and_sign_and_cosines_the_angle_alone
8   claims/scores_and_softmax::correlation_is_cosine_and_covariance_the_dot_product_only_of_centred_data
9   attention/against_torch::sdpa_with_a_mask
10  claims/scores_and_softmax::two_projections_are_one_bilinear_form
11  nn/scores::gatv2_is_an_additive_score
    models/rnn::steps_by_hand
12  claims/scores_and_softmax::cold_attention_is_a_dictionary_and_hot_attention_an_average
    nn/scores::softmax_at_low_temperature_is_hard_and_at_high_temperature_uniform
13  claims/scores_and_softmax::entropy_rises_with_temperature
    claims/scores_and_softmax::cold_attention_is_a_dictionary_and_hot_attention_an_average
14  claims/linear_attention::the_product_may_be_bracketed_either_way_on_a_full_graph
    claims/linear_attention::causally_it_is_a_prefix_sum_the_recurrent_network_of_katharopoulos
15  claims/scores_and_softmax::softmax_is_a_distribution_over_in_edges_and_without_it_weights_explode
17  nn/loaders::from_torch
    nn/graph_attention::widths_of_their_own_and_grouped_heads
18  claims/symmetry_and_parameters::keys_and_values_are_decoupled
19  claims/symmetry_and_parameters::parameters_do_not_grow_with_the_number_of_nodes_and_the_attention_matrix_does
20  claims/scores_and_softmax::classical_hopfield_is_attention_without_softmax_and_without_self_loops
    models/hopfield::a_step_is_attention_and_falls_along_the_energy
    models/hopfield::ising_of_networkx_and_spins_that_turn_at_once
    models/hopfield::stored_patterns_are_fixed_points_at_low_load_only
21  claims/scores_and_softmax::tokens_that_read_each_other_again_and_again_organise_themselves
22  models/hopfield::modern_memories_hold_what_classical_ones_lose
    models/hopfield::stored_patterns_are_fixed_points_at_low_load_only
23  models/rnn::the_bottleneck_forgets_long_sequences_and_attention_does_not
24  claims/symmetry_and_parameters::attention_has_fast_weights_and_a_linear_layer_slow_ones
26  attention/properties::any_call_is_the_formula
    interop/edge_index::edge_index_there_and_back
    interop/masks::there_and_back
    interop/flex::mask_mods_answer_as_the_graph_does
    interop/networkx::there_and_back
    interop/scipy::there_and_back
    interop/pyg::data_there_and_back
27  claims/reach::the_graphs_of_encoder_and_decoder
    models/bert::another_graph_is_another_mask_there
    models/vit::any_graph_is_their_attention_mask
28  claims/reach::the_graphs_of_encoder_and_decoder
    claims/models_of_transformers::the_attention_of_any_transformer_is_ours_on_its_graphs
    models/t5::a_removed_edge_changes_only_what_depends_on_it
    models/bart::a_removed_edge_changes_only_what_depends_on_it
29  claims/reach::the_graphs_of_encoder_and_decoder
30  claims/reach::rows_are_queries_and_the_other_layout_is_the_transpose
31  nn/graph_attention::self_and_cross_attention
    nn/loaders::from_torch
    claims/models_of_transformers::the_attention_of_any_transformer_is_ours_on_its_graphs
32  attention/per_head::equals_each_head_by_itself_with_gradients
    claims/operations::multi_head_attention_is_four_matrix_products
    claims/reach::convolution_recurrence_and_attention_are_layers_of_one_model
33  claims/symmetry_and_parameters::relabelling_nodes_and_edges_relabels_the_output
    claims/symmetry_and_parameters::on_a_full_graph_nodes_may_be_permuted_alone_and_on_a_causal_one_not
34  claims/symmetry_and_parameters::a_node_is_invariant_to_the_order_of_what_it_reads
    claims/symmetry_and_parameters::transformer_and_average_pool_are_permutation_invariant
35  claims/reach::longest_of_the_shortest_paths
    claims/reach::dilated_convolutions_of_width_k_reach_n_in_log_k_n_layers
36  claims/reach::wavenet_hears_sixteen
    claims/reach::k_layers_of_width_w_hear_k_times_w_less_one_plus_one
    claims/reach::stacked_attention_mixes_k_hops_pairs_of_pairs
37  claims/convolution::a_convolution_is_attention_with_a_head_for_each_offset
38  claims/convolution::a_convolution_is_attention_with_a_head_for_each_offset
    graphs/builders_grid::neighbourhood_follows_the_written_rule
    graphs/builders_grid::neighbourhood_is_nattens
39  claims/convolution::a_convolution_is_attention_with_a_head_for_each_offset
    claims/convolution::convolution_is_equivariant_to_shifts_as_the_graph_is_and_attention_to_permutations
40  claims/convolution::a_shared_perceptron_is_attention_to_oneself_and_a_convolution_of_one
41  graphs/builders_points::knn_is_brute_force
    graphs/builders_points::without_ties_scipy_and_cdist_agree
    graphs/points_sampling::farthest_points_are_the_greedy_ones
    graphs/points_windows::ball_query_is_the_loop_of_pointnet2
    graphs/builders_mesh::vertices_are_the_ring_of_a_breadth_first_search
    graphs/builders_mesh::trimeshs_icosphere
42  claims/pictures::balls_around_farthest_points_hold_the_points_within_the_radius
    viz/viz_gallery::a_mesh_is_drawn_over_its_vertices
43  claims/reach::a_virtual_node_is_label_to_sequence_and_sequence_to_label
44  nn/loaders::from_pyg
45  claims/reach::stacked_attention_mixes_k_hops_pairs_of_pairs
46  claims/reach::attention_alone_averages_everything_away_and_residuals_keep_it
47  claims/reach::distance_in_the_input_is_distance_in_the_features_for_convolutions_and_not_for_attention
48  claims/reach::a_decoder_does_not_hear_the_future
49  claims/scores_and_softmax::a_mask_belongs_outside_the_scaling_and_only_minus_infinity_does_not_care
50  claims/symmetry_and_parameters::transformer_and_average_pool_are_permutation_invariant
    nn/positions::without_positions_a_layer_is_equivariant_and_with_them_it_is_not
51  nn/positions::learned_adds_a_row_and_has_no_more_than_max_len
    nn/positions_transformers::learned_positions_of_bert
    models/gpt::gpt2_of_transformers
52  claims/scores_and_softmax::sines_of_a_later_position_are_a_turn_of_those_of_an_earlier
    nn/positions::sinusoidal_by_its_table
53  nn/positions_transformers::bias_of_t5
    nn/positions_transformers::bias_of_swin
    claims/models_of_transformers::relative_positions_are_attributes_of_edges_in_beit_and_longt5
54  nn/positions::rotary_scores_depend_only_on_the_difference_of_positions
    nn/positions_transformers::rotary_of_llama
    models/llama::models_of_transformers
55  graphs/builders_grid::cells_are_swins_rolled_and_masked_windows
    models/swin::every_stage
56  claims/reach::the_graphs_of_encoder_and_decoder
    graphs/builders_sequence::prefix
57  claims/symmetry_and_parameters::heads_do_not_tell_mary_from_susan_whatever_their_weights
    claims/symmetry_and_parameters::positions_edge_types_or_another_graph_tell_mary_from_susan
    claims/symmetry_and_parameters::too_tired_or_too_wide_is_not_a_matter_of_position
58  nn/loaders::from_torch
    claims/symmetry_and_parameters::any_number_of_heads_has_the_same_parameters
59  claims/operations::multi_head_attention_is_four_matrix_products
60  claims/symmetry_and_parameters::any_number_of_heads_has_the_same_parameters
61  claims/symmetry_and_parameters::attention_is_linear_in_the_values_and_not_in_its_input
62  claims/symmetry_and_parameters::heads_attend_differently_and_their_mean_is_none_of_them
63  claims/errors_of_the_sources::source_b_normalises_over_channels_and_space_layer_norm_is_over_the_features_of_a_token
64  claims/symmetry_and_parameters::without_attention_a_block_is_its_residual
65  models/stacks::encoder_layer
    models/stacks::decoder_layer
66  models/stacks::the_whole_transformer
67  claims/errors_of_the_sources::source_c_takes_keys_and_queries_from_the_encoder_keys_and_values_come_from_it
    claims/models_of_transformers::the_attention_of_any_transformer_is_ours_on_its_graphs
68  claims/errors_of_the_sources::three_attentions_of_the_transformer_are_one_class_on_three_graphs
69  models/stacks::experts_chosen_all_are_a_dense_mixture_and_order_does_not_matter
    claims/operations::experts_that_are_not_chosen_cost_nothing
70  models/vit::classifier
    models/vivit_perceiver::vivit
    models/decision_transformer::predictions_and_gradients
    claims/models_of_transformers::the_attention_of_any_transformer_is_ours_on_its_graphs
71  claims/symmetry_and_parameters::pointnet_is_a_graph_of_self_loops_and_a_pool_by_the_largest
72  claims/symmetry_and_parameters::a_row_of_an_embedding_is_a_one_hot_vector_times_its_matrix
73  models/gpt::gpt2_of_transformers
74  models/generation::one_beam_is_greedy
    models/generation::beams_find_what_is_at_least_as_likely
    models/generation::incremental_is_what_the_whole_gives
    claims/errors_of_the_sources::more_beams_may_end_in_a_text_that_is_less_likely
75  models/stacks::a_cache_gives_what_the_whole_gives
76  models/rnn::the_bottleneck_forgets_long_sequences_and_attention_does_not
    models/rnn::the_bottleneck_hears_the_last_state_alone
77  models/rnn::steps_by_hand
    models/rnn::bahdanau_reads_by_the_state_before_and_luong_by_its_own
78  claims/scores_and_softmax::cross_attention_without_projections_is_that_with_identities
    models/rnn::luong_is_cross_attention_of_one_head
79  claims/reach::longest_of_the_shortest_paths
80  claims/reach::convolution_recurrence_and_attention_are_layers_of_one_model
81  claims/scores_and_softmax::a_vector_times_a_hundred_is_one_hot
    claims/scores_and_softmax::unscaled_scores_saturate_softmax_and_the_root_of_d_prevents_it
82  claims/scores_and_softmax::unscaled_scores_saturate_softmax_and_the_root_of_d_prevents_it
83  claims/scores_and_softmax::the_diagonal_is_largest_for_unit_vectors_and_not_in_general
84  claims/studies::one_head_averages_two_relations_that_two_heads_keep_apart
85  claims/studies::a_bias_to_what_is_near_inhibits_a_far_task_and_is_needed_where_examples_are_few
86  claims/operations::a_separable_convolution_costs_what_attention_and_a_shared_perceptron_cost
    claims/operations::flops_are_those_that_torch_counts
87  claims/reach::attention_alone_averages_everything_away_and_residuals_keep_it
    claims/reach::without_residuals_nothing_is_learned_from_what_nodes_differ_in
88  claims/pictures::one_sentence_reads_another_head_by_head_as_lines
    viz/viz_heads::lines_run_from_targets_to_sources_and_are_coloured_by_weight
89  viz/viz_heads::matrices_are_the_weights
    viz/viz_pictures::mask_image_is_the_mask
90  claims/pictures::what_a_node_hears_is_a_breadth_first_search_on_images_points_and_meshes
    viz/viz_receptive::grid_panels_show_what_is_read_after_each_layer
91  claims/studies::flies_moves_to_soars_or_to_insects_with_its_context
92  claims/studies::bears_has_the_role_of_its_place_by_positions_and_projections
93  claims/symmetry_and_parameters::transformer_and_average_pool_are_permutation_invariant
94  viz/viz_receptive::rows_hold_every_path_to_the_target
"""
REMARKS = {
    16: "attention weights are no calibrated probabilities: graphattn/backends/weights.py",
    25: "times are printed, not asserted: examples/14_dot_products_are_cheaper_than_additive_scores.py",
}
ERRORS = """
D: q_4 k_6 and q_5 k_6 are unmasked
    claims/errors_of_the_sources::source_d_prints_a_causal_table_in_which_tokens_four_and_five_read_token_six
D: Q = XW is 16 x 8 with W 8 x 4
    claims/errors_of_the_sources::source_d_gives_sixteen_by_eight_for_queries_that_are_sixteen_by_four
D, C: softmax of columns
    claims/reach::rows_are_queries_and_the_other_layout_is_the_transpose
B: the mask inside the scaling
    claims/scores_and_softmax::a_mask_belongs_outside_the_scaling_and_only_minus_infinity_does_not_care
B: the encoder's attention matrix is passed on
    claims/errors_of_the_sources::source_b_passes_the_attention_matrix_of_the_encoder_it_is_its_output_vectors
B: layer norm across channels and space
    claims/errors_of_the_sources::source_b_normalises_over_channels_and_space_layer_norm_is_over_the_features_of_a_token
C: keys and queries from the encoder
    claims/errors_of_the_sources::source_c_takes_keys_and_queries_from_the_encoder_keys_and_values_come_from_it
C: the diagonal of W is largest
    claims/scores_and_softmax::the_diagonal_is_largest_for_unit_vectors_and_not_in_general
C: correlation is cosine
    claims/scores_and_softmax::correlation_is_cosine_and_covariance_the_dot_product_only_of_centred_data
C: several heads tell mary from susan
    claims/symmetry_and_parameters::heads_do_not_tell_mary_from_susan_whatever_their_weights
C: the upper triangle of X^T X with its diagonal
    claims/errors_of_the_sources::source_c_masks_the_upper_triangle_with_the_diagonal_it_is_the_strict_one
E: Q K^T / D, the root is lost
    claims/errors_of_the_sources::source_e_lost_a_root_the_factor_is_one_over_the_root_of_the_width_of_a_head
A: the Hopfield update is missing, W = X_i^T X_j
    claims/scores_and_softmax::classical_hopfield_is_attention_without_softmax_and_without_self_loops
A: no self-loops in the causal picture
    claims/reach::the_graphs_of_encoder_and_decoder
"""


@cache
def names_in(file: str) -> set[str]:
    room, name = file.split("/")
    tree = ast.parse((TESTS / room / f"test_{name}.py").read_text())
    return {node.name.removeprefix("test_") for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def missing(places: list[str]) -> list[str]:
    return [place for place in places if place.split("::")[1] not in names_in(place.split("::")[0])]


def test_every_row_is_tested_where_it_says_or_a_remark():
    words = ROWS.split()
    assert missing([word for word in words if "::" in word]) == []
    assert sorted([*(int(word) for word in words if word.isdigit()), *REMARKS]) == list(range(1, 95))
    assert all(after.count("::") for word, after in pairwise(words) if word.isdigit())
    for remark in REMARKS.values():
        assert (TESTS.parent / remark.split(": ")[1]).exists()
    assert missing(["claims/reach::what_nobody_wrote"])


def test_every_error_of_the_sources_is_tested():  # section 7
    lines = ERRORS.strip().splitlines()
    claims, places = lines[::2], [line.strip() for line in lines[1::2]]
    assert len(claims) == len(places) == 14
    assert not any(line.startswith(" ") for line in claims)
    assert missing(places) == []
