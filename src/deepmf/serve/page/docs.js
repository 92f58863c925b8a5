/* Starts Swagger UI, which reads the OpenAPI description of this service. */

document.documentElement.classList.toggle("dark-mode", matchMedia("(prefers-color-scheme: dark)").matches);

SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#api",
  deepLinking: true,
  displayRequestDuration: true,
  tryItOutEnabled: true,
  validatorUrl: null, // no request to elsewhere
  presets: [SwaggerUIBundle.presets.apis],
});
