// Copies a fixed state of sequences, each identified by a row of the call: from its line before that row, zeros if the
// sequence begins there; or, with BACK, to the line as the state after so many rows from that row on. A line has RING
// values of whole vectors.
struct Dims { size: u32, sequences: u32, row: u32, apart: u32, rows: u32 }  // size in words

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let i = flat_group(group, groups) * WG + lid;
    if (i >= dims.size * dims.sequences) { return; }
    let place = row_place(dims.row + i / dims.size * dims.apart);
    let element = i % dims.size;
    let padded = (dims.size + 3u) / 4u * 4u;
    if (BACK) {
        y[(RING * place.y + (place.x + dims.rows) % RING) * padded + element] = x[i];
    } else {
        let at = (RING * place.y + place.x % RING) * padded + element;
        y[i] = select(x[at], 0u, place.x == 0u);
    }
}
