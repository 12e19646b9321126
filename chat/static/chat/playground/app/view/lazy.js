// @ts-check
// Parts of the page that are loaded when they are first shown.
import { html, useEffect, useState } from "../../../vendor/preact.js";

/**
 * Return a component that loads another one, and draws nothing until it is there.
 * @template P
 * @param {() => Promise<(props: P) => any>} load
 * @returns {(props: P) => any}
 */
export function lazy(load) {
  /** @type {((props: P) => any) | undefined} */
  let Loaded;
  return function Lazy(props) {
    const [, setLoaded] = useState(Boolean(Loaded));
    useEffect(() => {
      if (Loaded) return;
      load().then(
        (component) => {
          Loaded = component;
          setLoaded(true);
        },
        () => {}, // the network is away, or the server has newer files; the next one that is shown is another try
      );
    }, []);
    return Loaded ? html`<${Loaded} ...${props} />` : null;
  };
}
