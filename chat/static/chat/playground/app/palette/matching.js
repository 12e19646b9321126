// @ts-check

/**
 * The items whose titles have the query's words, or its letters in their order; the closest first.
 * @template {{title: string}} T
 * @param {T[]} items
 * @param {string} query
 * @returns {T[]}
 */
export function matching(items, query) {
  const wanted = query.trim().toLowerCase();
  if (!wanted) return items;
  const rated = items.map((item) => ({ item, distance: distanceOf(item.title.toLowerCase(), wanted) }));
  return rated.filter(({ distance }) => distance < Infinity).sort((one, other) => one.distance - other.distance).map(({ item }) => item);
}

/** @param {string} title @param {string} wanted */
function distanceOf(title, wanted) {
  if (title.startsWith(wanted)) return 0;
  if (title.includes(` ${wanted}`)) return 1;
  if (title.includes(wanted)) return 2;
  if (wanted.split(/\s+/).every((word) => title.includes(word))) return 3;
  return hasInOrder(title, wanted.replace(/\s+/g, "")) ? 4 : Infinity;
}

/** @param {string} title @param {string} letters */
function hasInOrder(title, letters) {
  let from = 0;
  for (const letter of letters) {
    from = title.indexOf(letter, from) + 1;
    if (from === 0) return false;
  }
  return true;
}
