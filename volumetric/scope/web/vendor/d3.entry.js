export { extent, max, min, bisector, range, ticks, quantile } from "d3-array";
export { axisBottom, axisLeft, axisTop, axisRight } from "d3-axis";
export { brushX } from "d3-brush";
export { format } from "d3-format";
export { scaleLinear, scaleLog, scaleSymlog, scaleSqrt, scaleBand, scalePoint, scaleOrdinal } from "d3-scale";
export { select, pointer } from "d3-selection";
export { line, area, stack, stackOffsetSilhouette, stackOffsetWiggle, stackOrderAppearance, stackOrderInsideOut, curveMonotoneX, curveStepAfter, curveLinear, curveBumpY, curveBumpX, linkVertical, linkHorizontal } from "d3-shape";
export { zoom, zoomIdentity, zoomTransform } from "d3-zoom";
export { interpolateViridis, interpolateCividis, interpolateMagma, interpolateRdBu, interpolatePuOr } from "d3-scale-chromatic";
