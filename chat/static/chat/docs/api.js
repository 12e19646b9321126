// Shows the description of the API, with the name of the default model in those examples that need one (chat/api/openapi/answers.py).
const place = document.getElementById("api");
fetch(place.dataset.schema)
  .then((response) => response.text())
  .then((text) => {
    const model = JSON.stringify(place.dataset.model || "MODEL_NAME");
    const spec = JSON.parse(text.replaceAll('"MODEL_NAME"', () => model));
    SwaggerUIBundle({ spec, domNode: place, deepLinking: true, tryItOutEnabled: true, persistAuthorization: false });
  });
