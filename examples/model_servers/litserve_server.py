"""Serve an exported classifier with LitServe: `pip install litserve onnxruntime pillow numpy`, then

vitreous export runs/photos --out photos.onnx --with-preprocessing
python litserve_server.py photos.onnx
curl -F content=@photo.jpg http://127.0.0.1:8000/predict
"""

import json
import sys
from typing import Any

import litserve as ls
import numpy as np
import onnxruntime
from numpy.typing import NDArray
from PIL import Image, ImageOps


class Photos(ls.LitAPI):  # type: ignore[misc]
    def setup(self, device: str) -> None:
        providers = ["CUDAExecutionProvider"] if device.startswith("cuda") else []
        self.session = onnxruntime.InferenceSession(
            sys.argv[1], providers=[*providers, "CPUExecutionProvider"]
        )
        self.labels = json.loads(self.session.get_modelmeta().custom_metadata_map["labels"])

    def decode_request(self, request: Any) -> NDArray[np.uint8]:
        image = ImageOps.exif_transpose(Image.open(request["content"].file)).convert("RGB")
        return np.asarray(image)[None]  # (1, H, W, 3), uint8: the exported model resizes and normalizes

    def predict(self, pixels: NDArray[np.uint8]) -> Any:
        (probabilities,) = self.session.run(["probabilities"], {"pixels": pixels})
        return probabilities[0]

    def encode_response(self, probabilities: Any) -> dict[str, Any]:
        best = int(probabilities.argmax())
        return {"label": self.labels[best], "probability": float(probabilities[best])}


if __name__ == "__main__":
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 8000
    ls.LitServer(Photos(), accelerator="auto", workers_per_device=2).run(
        port=port, generate_client_file=False
    )
