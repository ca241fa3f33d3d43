// y = x where it is among the KEEP largest of its row, of equals the earlier, else -inf; NaN stays. A workgroup a row: each
// element counts those before it, which is little work for the few branches of a gate.
@group(0) @binding(0) var<storage, read> x: array<f32>;        // (rows, STRIDE)
@group(0) @binding(1) var<storage, read_write> y: array<f32>;  // (rows, STRIDE)

const STRIDE: u32 = (WIDTH + 3u) / 4u * 4u;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let start = group.y * STRIDE;
    for (var i = lid; i < WIDTH; i += WG) {
        let v = x[start + i];
        let own = place_of(v);
        var before = 0u;
        for (var j = 0u; j < WIDTH; j++) {
            let other = place_of(x[start + j]);
            before += select(0u, 1u, other > own || (other == own && j < i));
        }
        var lowest = 0xff800000u;  // a variable, because no constant may be infinite
        y[start + i] = select(bitcast<f32>(lowest), v, own == 0u || before < KEEP);
    }
}
