"""The public names of the add-ons, as type checkers read them: those in `names` of each `ADDON`."""

from vitreous.addons.learn_page.api import learn as learn
