"""Outlines: from a region of a mask to polygons, and back.

    polygons = outlines(mask == 1)              # [n x 2: x, y in pixels], one for each connected part
    fill(polygons, mask.shape)                  # the region again, up to a pixel along its edges

The corner of the upper left pixel is (0, 0), its centre (0.5, 0.5). A pixel is inside of a polygon if its centre is,
by the rule of even and odd. Parts that only touch at a corner are two. A hole is joined to the outline around it by a
slit of no width, as most programs do it that know no holes: its two sides cancel, whatever the rule.

Outlines follow the edges of the pixels exactly, and are then simplified: no point of an edge is further from them than
TOLERANCE. A part that would lose too much by that keeps its exact outline.
"""
import numpy as np

TOLERANCE = 0.7         # pixels: the stairs of a slanted edge become straight

LEAST = 0.95            # IoU of a simplified part with its pixels

SHORT = 12              # points of an outline that is not simplified

CROSSINGS = 1 << 22     # of edges with rows, at a time

STEPS = np.array([(1, 0), (0, 1), (-1, 0), (0, -1)])         # x, y; the region lies on the right of an edge


def outlines(region, tolerance=TOLERANCE):
    """The polygons of an H x W bool region, the largest first; tolerance 0: exactly."""
    region = np.asarray(region, bool)
    rows, columns = (np.flatnonzero(region.any(axis=axis)) for axis in (1, 0))
    if not rows.size:
        return []
    corner = np.array([columns[0], rows[0]])
    rings = Rings(region[rows[0]:rows[-1] + 1, columns[0]:columns[-1] + 1])
    found = [polygon(rings, ring, tolerance) for ring in range(len(rings.points)) if not rings.is_hole[ring]]
    return [points + corner for points in sorted(found, key=lambda points: -area(points))]


def polygon(rings, ring, tolerance):
    """The outline of one part, as simple as LEAST allows."""
    exact = rings.joined(ring, 0)
    if len(exact) <= SHORT or not tolerance:
        return exact
    simple = rings.joined(ring, tolerance)
    low = exact.min(axis=0)
    size = (exact.max(axis=0) - low).astype(int)[::-1]
    before, after = (fill([points - low], size) for points in (exact, simple))
    return simple if (before & after).sum() >= LEAST * (before | after).sum() else exact


def area(points):
    """Positive for an outline, negative for a hole alone."""
    x, y = points.T
    return float((x * np.roll(y, -1) - np.roll(x, -1) * y).sum() / 2)


class Rings:
    """The closed lines between a region and what is not.

    points    per ring n x 2, every corner of a pixel that the line passes
    is_hole   per ring
    slits     {(ring, place): [(hole, place in it)]}: where slits begin and end
    """

    def __init__(self, region):
        self.region = region
        inside = np.pad(region, 1)
        height, self.width = region.shape[0] + 1, region.shape[1] + 1
        start, offsets = [], [0]                # the first corner of each edge, y * width + x, by direction
        for (x, y), (dx, dy) in zip(((0, 0), (1, 0), (1, 1), (0, 1)), ((0, -1), (1, 0), (0, 1), (-1, 0))):
            other = inside[1 + dy:height + dy, 1 + dx:self.width + dx]
            at = np.nonzero(region & ~other)
            start.append((at[0] + y) * self.width + at[1] + x)
            offsets.append(offsets[-1] + len(start[-1]))
        self.start, self.offsets = start, offsets
        self.corner = np.concatenate(start)
        self.direction = np.repeat(np.arange(4), [len(one) for one in start])
        self.next = self.next_edges()
        self.trace()
        self.join_holes()

    def find(self, corner, direction):
        """(number of the edge that begins there, whether there is one)"""
        known = self.start[direction]
        if not len(known):
            return np.zeros_like(corner), np.zeros(len(corner), bool)
        at = np.searchsorted(known, corner).clip(max=len(known) - 1)
        return at + self.offsets[direction], known[at] == corner

    def next_edges(self):
        """The edge after each. Where two pixels touch at a corner, it turns right, and so stays with its own pixel."""
        after = np.empty(len(self.corner), int)
        for direction, (dx, dy) in enumerate(STEPS):
            own = slice(self.offsets[direction], self.offsets[direction + 1])
            end = self.start[direction] + dy * self.width + dx
            for turn in (3, 0, 1):                              # left, straight on, right: the last that is there
                found, there = self.find(end, (direction + turn) % 4)
                after[own][there] = found[there]
        return after

    def trace(self):
        after, left = self.next.tolist(), bytearray(b"\1") * len(self.next)
        rings = []
        first = left.find(1)
        while first >= 0:
            ring, edge = [], first
            while left[edge]:
                left[edge] = 0
                ring.append(edge)
                edge = after[edge]
            rings.append(np.array(ring))
            first = left.find(1, first)
        self.edges = rings
        self.points = [np.stack([self.corner[ring] % self.width, self.corner[ring] // self.width], axis=1)
                       for ring in rings]
        self.is_hole = [area(points) < 0 for points in self.points]

    def join_holes(self):
        """A slit leads from the first pixel of a hole's leftmost column to the left, through the region, to the next
        ring. That one reaches further to the left, so rings and slits are a tree."""
        ring_of, place_of = np.empty(len(self.corner), int), np.empty(len(self.corner), int)
        for ring, edges in enumerate(self.edges):
            ring_of[edges], place_of[edges] = ring, np.arange(len(edges))
        before = np.empty(len(self.next), int)
        before[self.next] = np.arange(len(before))
        self.is_corner, self.is_anchor = self.direction != self.direction[before], np.zeros(len(before), bool)
        self.slits: dict[tuple, list] = {}
        for hole, (edges, points) in enumerate(zip(self.edges, self.points)):
            if not self.is_hole[hole]:
                continue
            downward = np.flatnonzero(self.direction[edges] == 1)
            place = downward[np.lexsort(points[downward].T[::1])[0]]
            x, y = points[place]
            outside = np.flatnonzero(~self.region[y, :x])
            reached = outside[-1] + 1 if outside.size else 0
            edge = self.find(np.array([(y + 1) * self.width + reached]), 3)[0][0]
            edge = self.next[edge]
            self.slits.setdefault((ring_of[edge], place_of[edge]), []).append((hole, place))
            self.is_anchor[[edge, edges[place]]] = self.is_corner[[edge, edges[place]]] = True

    def kept(self, ring, tolerance):
        """The places in a ring that its simplified outline has, in order."""
        edges = self.edges[ring]
        corners = np.flatnonzero(self.is_corner[edges])
        if not tolerance or len(corners) <= 4:
            return corners
        points = self.points[ring][corners].astype(float)
        anchors = np.flatnonzero(self.is_anchor[edges[corners]]).tolist() or [0]
        if len(anchors) == 1:
            anchors = sorted({*anchors, int(np.square(points - points[anchors[0]]).sum(axis=1).argmax())})
        order = np.roll(np.arange(len(points)), -anchors[0])
        cuts = [*(np.array(anchors) - anchors[0]), len(points)]
        chosen = simplified(np.concatenate([points[order], points[order[:1]]]), cuts, tolerance)
        return np.sort(corners[order[chosen[:-1]]])

    def joined(self, ring, tolerance):
        """The outline of a part, with the holes in it."""
        found: list = []
        todo: list = [(ring, None)]         # of a ring and the place where it begins; of None and a point
        while todo:
            ring, start = todo.pop()
            if ring is None:
                found.append(start)
                continue
            places = self.kept(ring, tolerance)
            if start is not None:
                places = np.append(np.roll(places, -np.searchsorted(places, start)), start)
            later: list = []
            for k, place in enumerate(places.tolist()):
                point = self.points[ring][place]
                later.append((None, point))
                if start is None or k < len(places) - 1:
                    for hole in self.slits.get((ring, place), ()):
                        later += [hole, (None, point)]
            todo += reversed(later)
        return np.array(found, float)


def simplified(points, cuts, tolerance):
    """Which points of a line stay, so that no other is further than `tolerance` from it (Douglas and Peucker).

    cuts : places that stay, in order
    """
    keep = np.zeros(len(points), bool)
    keep[cuts] = True
    todo = list(zip(cuts[:-1], cuts[1:]))
    while todo:
        first, last = todo.pop()
        if last - first < 2:
            continue
        a, b, inner = points[first], points[last], points[first + 1:last]
        length = np.square(b - a).sum()
        t = ((inner - a) @ (b - a) / length).clip(0, 1) if length else np.zeros(len(inner))
        far = np.square(inner - (a + t[:, None] * (b - a))).sum(axis=1)
        if far.max() > tolerance ** 2:
            middle = first + 1 + int(far.argmax())
            keep[middle] = True
            todo += [(first, middle), (middle, last)]
    return np.flatnonzero(keep)


def fill(polygons, shape):
    """The pixels, bool of shape (height, width), whose centres are inside of any of the polygons."""
    region = np.zeros(shape, bool)
    for points in polygons:
        low, high = np.floor(points.min(axis=0)).clip(0), np.ceil(points.max(axis=0)).clip(0)
        left, top = low.clip(max=shape[::-1]).astype(int)
        right, bottom = high.clip(max=shape[::-1]).astype(int)
        if left < right and top < bottom:
            region[top:bottom, left:right] |= fill_one(points - (left, top), (bottom - top, right - left))
    return region


def fill_one(points, shape):
    """Each edge toggles the pixels on the right of where it crosses the middle of a row."""
    height, width = shape
    toggles = np.zeros((height, width + 1), np.uint8)
    (x0, y0), (x1, y1) = points.T, np.roll(points, -1, axis=0).T
    first, last = (np.ceil(side - 0.5).clip(0, height).astype(int) for side in (np.minimum(y0, y1), np.maximum(y0, y1)))
    rows = last - first
    edges = np.flatnonzero(rows)
    for some in np.split(edges, np.flatnonzero(np.diff(np.cumsum(rows[edges]) // CROSSINGS)) + 1):
        count = rows[some]
        edge = np.repeat(some, count)
        row = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + first[edge]
        x = x0[edge] + (row + 0.5 - y0[edge]) * ((x1 - x0)[edge] / (y1 - y0)[edge])
        column = np.ceil(x - 0.5).clip(0, width).astype(int)
        np.bitwise_xor.at(toggles, (row, column), 1)
    return np.bitwise_xor.accumulate(toggles, axis=1)[:, :width].astype(bool)
