"""Loop bodies that users write: the table that the cost model of `lw.scan` is fitted to, and judged by.

A third is held out: chosen once, by name, spread over the families. Nothing is ever tuned on those, so their ratios
say how well the model does on loops that it has not seen. (`n_body` and `hamiltonian_monte_carlo` were held out until
they showed what the model missed; then they joined the others, and four new ones took their place.)
"""

# Imported for the bodies that they add to the table, family by family.
from lapwing.bench.loop_bodies import (  # noqa: F401
    attention,
    learning,
    numerics,
    physics,
    probability,
    recurrent,
    sequences,
)
from lapwing.bench.loop_bodies._body import TABLE, Body

HELD_OUT = frozenset({
    "rnn_1_64", "rnn_32_64", "rnn_256_256", "layer_norm_lstm", "concatenated_lstm", "dropout_gru", "echo_state",
    "linear_attention", "delta_net", "s4_diagonal", "attention_decoder", "universal_transformer", "memory_machine",
    "gated_convolution",
    "mlp_layers", "meta_learning", "diffusion_sampler", "lambda_returns",
    "hmm_forward", "soft_edit_distance", "random_walk", "option_pricing",
    "spring_chain", "reaction_diffusion", "spiking_network", "pid_controller",
    "iir_filter", "running_norm", "gauss_seidel", "cond_skips_products",
})  # fmt: skip

FAMILIES = tuple(dict.fromkeys(body.family for body in TABLE.values()))

__all__ = ["FAMILIES", "HELD_OUT", "TABLE", "Body"]
