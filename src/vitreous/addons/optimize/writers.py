"""What this add-on adds to `vitreous export`: OpenVINO, and int8 of ONNX."""

from vitreous.addons.optimize.openvino import write_openvino
from vitreous.addons.optimize.quantization import write_onnx_int8
from vitreous.deployment.export import Writer

WRITERS = {
    ("onnx", "int8"): Writer(write_onnx_int8, calibrated=True),
    ("openvino", "fp32"): Writer(write_openvino),
    ("openvino", "bf16"): Writer(write_openvino, prepares=False),  # images would be prepared in bf16, too
    ("openvino", "int8"): Writer(write_openvino, calibrated=True),
}
