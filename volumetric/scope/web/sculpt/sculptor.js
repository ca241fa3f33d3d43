// Changes of a stream that runs behind the page.

/** Mount the panel; null where nothing runs. `context` is that of views/scene.js. */
export function mountSculptor(element, { app }) {
  return app.live && null;
}
