// What a recurrent cell hands over: forward the new state and what its gradient needs; backward the gradients of both kinds
// of pre-activations, and of the states before apart from what goes through the product.
alias Others = array<f32, 3>;  // states beside h
alias Kept = array<f32, 8>;
struct Step { h: f32, kept: Kept }
struct Back { x: array<f32, 4>, r: array<f32, 4>, h: f32, c: Others }
