// How a scene's nodes stand in space: their size, slices through them, and layers pulled apart.

/** Return {setNodeScale(factor), setSlices(low, high), explode(way, amount)}. */
export function sceneSpace({ nodes, screen, floor, draw }) {
  const changed = () => {
    screen.forget();
    draw();
  };
  return {
    /** Draw all nodes larger or smaller; 1: as usual. */
    setNodeScale(factor) {
      nodes.uniforms.radius.value = nodes.usualRadius * factor;
      changed();
    },
    /** Hide the nodes outside of [low, high] of coordinates x, y, z as the data has them; null: none. */
    setSlices(low, high) {
      const far = 1e9,
        a = low ?? [-far, -far, -far],
        b = high ?? [far, far, far];
      nodes.uniforms.low.value.set(a[0], -b[1], a[2]);
      nodes.uniforms.high.value.set(b[0], -a[1], b[2]);
      changed();
    },
    /** Pull layers apart by an amount, 0: not at all; `way` is one of the renderer's `ways`. */
    explode(way, amount) {
      for (let i = 0; i < nodes.count; i++) nodes.layers[4 * i] = way.numbers[i];
      nodes.spreadBy = way.name;
      nodes.layerReach = way.numbers.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
      nodes.uniforms.spread.value.set(...way.direction).multiplyScalar(amount);
      nodes.changed("layers");
      floor.update();
      changed();
    },
  };
}
