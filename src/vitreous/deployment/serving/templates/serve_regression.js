{% include "serve_classification.js" %}
