"""Pictures with a class for each pixel: folders of pictures and masks, composed pages, batches of both."""
