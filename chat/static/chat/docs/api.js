// Shows the description of the API, with the name of the default model in those examples that need one (chat/api/openapi/answers.py).

// Swagger puts a link into the button of each operation, where keyboards and screen readers cannot tell the two apart.
const PlainLinks = (system) => ({
  components: { DeepLink: ({ text }) => system.React.createElement("span", null, text) },
});

// What Swagger leaves without a name or out of the keyboard's reach. It draws anew at each click, so this runs after it.
function mend(place) {
  for (const area of place.querySelectorAll("textarea.body-param__text:not([aria-label])")) area.setAttribute("aria-label", "Request body");
  for (const field of place.querySelectorAll("select:not([aria-label])")) {
    if (!field.labels?.length) field.setAttribute("aria-label", "Content type");
  }
  for (const block of place.querySelectorAll("pre:not([tabindex])")) block.tabIndex = 0;
}

const place = document.getElementById("api");
fetch(place.dataset.schema)
  .then((response) => response.text())
  .then((text) => {
    const model = JSON.stringify(place.dataset.model || "MODEL_NAME");
    const spec = JSON.parse(text.replaceAll('"MODEL_NAME"', () => model));
    SwaggerUIBundle({
      spec,
      domNode: place,
      deepLinking: true,
      tryItOutEnabled: true,
      persistAuthorization: false,
      defaultModelsExpandDepth: 0,
      plugins: [PlainLinks],
      onComplete: () => mend(place),
    });
    new MutationObserver(() => mend(place)).observe(place, { childList: true, subtree: true });
  });

for (const button of document.querySelectorAll("[data-copy]")) {
  const source = document.getElementById(button.dataset.copy);
  button.hidden = false;
  button.addEventListener("click", async () => {
    if (await copied(source)) button.textContent = button.dataset.copied;
  });
}

/** Copy a text, also where the browser has no clipboard for pages: those over plain HTTP. It stays selected there. */
async function copied(source) {
  try {
    await navigator.clipboard.writeText(source.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(source);
    return document.execCommand("copy");
  }
}
