const place = document.getElementById("api");
SwaggerUIBundle({ url: place.dataset.schema, domNode: place, deepLinking: true, tryItOutEnabled: true, persistAuthorization: false });
