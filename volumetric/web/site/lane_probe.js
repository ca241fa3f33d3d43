// Whether neighbouring invocations are lanes of one subgroup, which kernels rely on and WebGPU does not promise.

const INVOCATIONS = 128;
const PROBE = `enable subgroups;
@group(0) @binding(0) var<storage, read_write> lanes: array<vec2<u32>>;
@compute @workgroup_size(${INVOCATIONS})
fn main(@builtin(local_invocation_index) i: u32, @builtin(subgroup_size) size: u32, @builtin(subgroup_invocation_id) lane: u32) {
  lanes[i] = vec2<u32>(size, lane);
}`;

/** Whether each aligned group of so many invocations is in one subgroup, in order. */
export async function lanesAreNeighbours(device, count) {
  const bytes = 8 * INVOCATIONS;
  const lanes = device.createBuffer({ size: bytes, usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC });
  const result = device.createBuffer({ size: bytes, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
  try {
    const compute = { module: device.createShaderModule({ code: PROBE }), entryPoint: "main" };
    const pipeline = await device.createComputePipelineAsync({ layout: "auto", compute });
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries: [{ binding: 0, resource: { buffer: lanes } }] }));
    pass.dispatchWorkgroups(1);
    pass.end();
    encoder.copyBufferToBuffer(lanes, 0, result, 0, bytes);
    device.queue.submit([encoder.finish()]);
    await result.mapAsync(GPUMapMode.READ);
    const pairs = new Uint32Array(result.getMappedRange());
    const size = pairs[0];
    return size >= count && pairs.every((value, i) => value === (i % 2 ? (i >> 1) % size : size));
  } catch {
    return false; // the other variants do without
  } finally {
    lanes.destroy();
    result.destroy();
  }
}
