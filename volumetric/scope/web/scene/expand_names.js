// Names of a large scene stand in its data as a few texts and a number for each node.

/** Return the names of nodes: `names` is a list, or {texts, text, number} of scene_tables.py; a number below 0 stands for none. */
export function expandNames(names) {
  if (Array.isArray(names)) return names;
  const { texts, text, number } = names;
  return Array.from(text.data, (which, i) => (number.data[i] < 0 ? texts[which] : `${texts[which]}${number.data[i]}`));
}
