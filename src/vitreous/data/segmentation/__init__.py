"""Images with a class for each pixel: folders of images and masks, composed pages, batches of both."""
