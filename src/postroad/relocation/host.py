"""What moving publishers need of the scheme that they stand on.

`RelocationHost` names it, with the answers of advertisement-based forwarding, where nothing
waits in a broker; `on_popsub.py` has PopSub's. All that moves publishers uses these, and the
tables of advertisement-based forwarding.
"""

from __future__ import annotations

from collections.abc import Iterable

from postroad.model import AdvertisementId, BrokerId, Publication
from postroad.routing.advertisement_forwarding import AdvertisementForwarding
from postroad.routing.base import Effect


class RelocationHost(AdvertisementForwarding):
    stateless = False  # a publication may be traced

    def send_waiting(self, name: AdvertisementId) -> list[Effect]:
        """Send what still waits here of a publisher's publications."""
        return []

    def deliveries_waiting(self, publication: Publication) -> int:
        """How many deliveries of a publication wait here to be made in order."""
        return 0

    def publisher_turned(self, name: AdvertisementId) -> list[Effect]:
        """A publisher is now to be found in another direction, or in another epoch."""
        return []

    def reached_by(self, name: AdvertisementId, links: Iterable[BrokerId]) -> list[BrokerId]:
        """Behind which neighbours there are deliveries of what was sent over these links."""
        return list(links)
