// What a gate lets through: apply(gate) * up, or with a LIMIT apply(min(gate, LIMIT)) * (clamp(up) + UP_OFFSET). NaN stays.
fn at_most(x: f32, bound: f32) -> f32 { return select(min(x, bound), x, is_nan(x)); }
fn opened(gate: f32, up: f32) -> f32 {
    if (LIMIT == 0.0) { return apply(gate) * up; }
    return apply(at_most(gate, LIMIT)) * (-at_most(-at_most(up, LIMIT), LIMIT) + UP_OFFSET);
}
