// Queries as halves for matrix units, each times the power of two with which its largest element is near 2^14; `undo` is
// what products of it are multiplied by.
@group(0) @binding(6) var<storage, read_write> undo: array<f32>;  // (rows, HEADS)

alias Query = vec2<u32>;

fn query_power(at: u32, scale: f32, lid: u32) -> f32 {
    var top = 0u;
    for (var d = lid; d < HEAD_DIM; d += WG) { top = max(top, bitcast<u32>(scale * head[d]) & 0x7fffffffu); }
    let powers = halving_powers(team_max(f32(top >> 23u), lid, WG));
    if (lid == 0u && at / HEADS < ctl.rows) { undo[at] = powers.y; }
    return powers.x;
}

fn to_query(v: vec4<f32>) -> Query { return vec2<u32>(pack2x16float(v.xy), pack2x16float(v.zw)); }
