// Where boxes and lines of a graph go: dagre decides, this keeps it away from the rest.

import { Graph, layout as arrange } from "./vendor/dagre.js";

/** Place nodes, given as [id, [[sender, how], …]]; an edge between unknown nodes is left out. */
export function layout(nodes, width, height, direction) {
  const graph = new Graph({ multigraph: true });
  graph.setGraph({ rankdir: direction, nodesep: 24, ranksep: 64, marginx: 12, marginy: 18 });
  graph.setDefaultEdgeLabel(() => ({}));
  const known = new Set(nodes.map(([id]) => id));
  for (const [id] of nodes) graph.setNode(id, { width, height });
  nodes.forEach(([id, inputs]) =>
    inputs.forEach(([sender, how], index) => {
      if (known.has(sender)) graph.setEdge(sender, id, { how }, String(index));
    }),
  );
  arrange(graph);
  const size = graph.graph();
  return {
    width: Math.ceil(size.width || width),
    height: Math.ceil(size.height || height),
    nodes: graph.nodes().map((id) => ({ id, x: graph.node(id).x, y: graph.node(id).y })),
    edges: graph.edges().map((edge) => {
      const { points, how } = graph.edge(edge);
      return { key: `${edge.v} ${edge.w} ${edge.name}`, points, how };
    }),
  };
}
