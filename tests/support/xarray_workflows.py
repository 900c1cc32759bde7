"""What users of xarray write in a line, two hundred times: of a dataset of weather, and of what it holds.

`WORKFLOWS` has the lines by name. `LOSSES` says which of them xarray computes early, or brings to numpy, and why:
the list that the documentation has. `dataset` makes the data, of numpy's arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

__all__ = ["LOSSES", "READS", "WORKFLOWS", "Source", "dataset"]

#: Names of the sources that were read, in this process.
READS: list[str] = []


class Source:
    """Numpy's array as something that is read by slices, and notes it: what xarray's tests call `raise_if_computes`."""

    def __init__(self, name: str, values: Any) -> None:
        self.name, self.values = name, values
        self.shape, self.dtype, self.ndim = values.shape, values.dtype, values.ndim

    def __getitem__(self, key: Any) -> Any:
        READS.append(self.name)
        return self.values[key]


def dataset() -> Any:
    """Return 40 days of fields on a grid of 5 x 6: with gaps, and of several dtypes."""
    rng = np.random.default_rng(7)
    shape = (40, 5, 6)
    air = 280 + 10 * rng.standard_normal(shape)
    gaps = np.where(rng.random(shape) < 0.1, np.nan, air)
    gaps[3, :, :] = np.nan
    time = pd.date_range("2001-12-20", periods=40, freq="D").to_numpy()
    seen = time[:, None] + rng.integers(0, 90_000, (40, 5)).astype("timedelta64[s]")
    return xr.Dataset(
        {
            "air": (("time", "lat", "lon"), air, {"units": "K"}),
            "gaps": (("time", "lat", "lon"), gaps),
            "n": (("time", "lon"), rng.integers(-5, 30, (40, 6))),
            "land": (("lat", "lon"), rng.random((5, 6)) < 0.4),
            "area": (("lat",), np.cos(np.deg2rad(np.linspace(-60, 60, 5)))),
            "seen": (("time", "lat"), seen),
            "z": (("lat", "lon"), rng.standard_normal((5, 6)) + 1j * rng.standard_normal((5, 6))),
        },
        coords={
            "time": time,
            "lat": np.linspace(-60.0, 60.0, 5),
            "lon": np.arange(6.0) * 60,
            "height": (("lat", "lon"), rng.random((5, 6)) * 3000),
            "zone": ("lat", np.array([0, 1, 1, 0, 2])),
        },
        attrs={"title": "weather"},
    )


def _anomalies(ds: Any) -> Any:
    by_month = ds.air.groupby("time.month")
    return by_month - by_month.mean()


def _standardised(ds: Any) -> Any:
    def of_group(group: Any) -> Any:
        return (group - group.mean("time")) / group.std("time")

    return ds.air.groupby("time.season").map(of_group)


def _whole(a: Any, dim: str) -> Any:
    """Return an array of one chunk along a dimension, as functions of it want it; numpy's stays as it is."""
    return a.chunk({dim: -1}) if a.chunks else a


def _linear(x: Any, a: Any, b: Any) -> Any:
    return a * x + b


def _written(ds: Any) -> Any:
    made = ds.air.copy()
    made[{"time": 3}] = 0.0
    made.loc[{"lat": -60.0}] = 1.0
    made[{"lon": slice(0, 2)}] += 2
    return made


def _masked_write(ds: Any) -> Any:
    made = ds.copy()
    made["air"] = made.air.where(made.air > 280, 280)
    made["both"] = made.air + made.n
    return made


Workflow = Callable[[Any], Any]

_ARITHMETIC: dict[str, Workflow] = {
    "add a number": lambda ds: ds.air + 1,
    "number first": lambda ds: 2 - ds.air,
    "power": lambda ds: ds.air**2,
    "celsius in place": lambda ds: ds.air.assign_attrs(units="C") - 273.15,
    "broadcast two variables": lambda ds: ds.air * ds.area,
    "integers and floats": lambda ds: ds.n + ds.air,
    "floor division": lambda ds: ds.n // 4,
    "remainder": lambda ds: ds.n % 7,
    "compare": lambda ds: ds.air > 280,
    "and of masks": lambda ds: (ds.air > 275) & ds.land,
    "negate a mask": lambda ds: ~ds.land,
    "absolute value": lambda ds: abs(ds.n),
    "numpy ufunc": lambda ds: np.exp(ds.air / 300),
    "ufunc of two": lambda ds: np.hypot(ds.air, ds.n),
    "arctan2": lambda ds: np.arctan2(ds.air, ds.n + 100),
    "clip": lambda ds: ds.air.clip(275, 285),
    "round": lambda ds: ds.air.round(1),
    "dataset plus number": lambda ds: ds[["air", "n"]] + 1,
    "dataset minus its mean": lambda ds: ds[["air", "n"]] - ds[["air", "n"]].mean("time"),
    "real": lambda ds: ds.z.real,
    "imag": lambda ds: ds.z.imag,
    "conjugate": lambda ds: ds.z.conj(),
    "modulus": lambda ds: abs(ds.z),
    "astype": lambda ds: ds.air.astype("float32"),
    "is null": lambda ds: ds.gaps.isnull(),
    "not null": lambda ds: ds.gaps.notnull(),
    "fillna number": lambda ds: ds.gaps.fillna(0),
    "fillna array": lambda ds: ds.gaps.fillna(ds.gaps.mean("time")),
    "combine first": lambda ds: ds.gaps.combine_first(ds.air),
    "where": lambda ds: ds.air.where(ds.air > 280),
    "where other": lambda ds: ds.air.where(ds.land, -1.0),
    "xr.where": lambda ds: xr.where(ds.air > 280, ds.air, ds.n),
    "isin": lambda ds: ds.n.isin([1, 2, 3]),
    "coordinate in a formula": lambda ds: ds.air - 0.0065 * ds.height,
    "cos of a coordinate": lambda ds: ds.air * np.cos(np.deg2rad(ds.lat)),
    "difference of times": lambda ds: ds.seen - ds.time,
    "time plus step": lambda ds: ds.seen + np.timedelta64(1, "D"),
    "seconds": lambda ds: (ds.seen - ds.time) / np.timedelta64(1, "s"),
    "later than": lambda ds: ds.seen > np.datetime64("2002-01-05"),
    "days by astype": lambda ds: ds.seen.astype("datetime64[s]").copy(),
    "full_like": lambda ds: xr.full_like(ds.air, 3.0),
    "zeros_like": lambda ds: xr.zeros_like(ds.air),
    "ones_like of another dtype": lambda ds: xr.ones_like(ds.air, dtype=int),
    "write into a copy": _written,
    "assign where": _masked_write,
    "angle": lambda ds: xr.apply_ufunc(np.angle, ds.z, dask="allowed"),
    "sign and sqrt": lambda ds: np.sign(ds.n) * np.sqrt(abs(ds.n)),
    "maximum": lambda ds: np.maximum(ds.air, 280),
    "logical or": lambda ds: np.logical_or(ds.land, ds.air > 280),
    "degrees": lambda ds: np.rad2deg(ds.area),
}

_REDUCTIONS: dict[str, Workflow] = {
    "mean of all": lambda ds: ds.air.mean(),
    "mean over time": lambda ds: ds.air.mean("time"),
    "mean over two": lambda ds: ds.air.mean(("lat", "lon")),
    "mean with gaps": lambda ds: ds.gaps.mean("time"),
    "mean without skipna": lambda ds: ds.gaps.mean("time", skipna=False),
    "mean keeping attributes": lambda ds: ds.air.mean("lat", keep_attrs=True),
    "sum": lambda ds: ds.gaps.sum("lon"),
    "sum min_count": lambda ds: ds.gaps.sum("time", min_count=38),
    "product": lambda ds: (ds.gaps / 280).prod("lat"),
    "minimum": lambda ds: ds.gaps.min("time"),
    "maximum of all": lambda ds: ds.gaps.max(),
    "standard deviation": lambda ds: ds.gaps.std("time", ddof=1),
    "variance": lambda ds: ds.gaps.var("lat"),
    "median": lambda ds: ds.gaps.median("time"),
    "median without gaps": lambda ds: ds.air.median("lat"),
    "quantile": lambda ds: ds.air.quantile(0.9, "time"),
    "quantiles": lambda ds: ds.air.quantile([0.1, 0.5], "time"),
    "quantile with gaps": lambda ds: ds.gaps.quantile(0.5, "time"),
    "count": lambda ds: ds.gaps.count("time"),
    "any": lambda ds: ds.land.any("lat"),
    "all": lambda ds: (ds.air > 0).all(),
    "argmax": lambda ds: ds.air.argmax("time"),
    "argmin with gaps": lambda ds: ds.gaps.argmin("lat", skipna=False),
    "argmax skipping gaps": lambda ds: ds.gaps.fillna(0).argmax("lon"),
    "argmax of all": lambda ds: ds.air.argmax(...)["time"],
    "idxmax": lambda ds: ds.air.idxmax("time"),
    "idxmin": lambda ds: ds.air.idxmin("lat"),
    "idxmax with gaps": lambda ds: ds.gaps.isel(time=slice(4, None)).idxmax("lon"),
    "dataset mean": lambda ds: ds.mean("time"),
    "dataset std": lambda ds: ds[["air", "gaps"]].std(),
    "cumsum": lambda ds: ds.gaps.cumsum("time"),
    "cumsum without skipna": lambda ds: ds.air.cumsum("lat"),
    "cumprod": lambda ds: (ds.gaps / 280).cumprod("lon"),
    "cumulative over": lambda ds: ds.air.cumulative("time").sum(),
    "diff": lambda ds: ds.air.diff("time"),
    "second diff": lambda ds: ds.air.diff("lat", n=2, label="lower"),
    "differentiate": lambda ds: ds.air.differentiate("lat"),
    "differentiate in time": lambda ds: ds.air.differentiate("time", datetime_unit="D"),
    "integrate": lambda ds: ds.air.integrate("lat"),
    "cumulative integrate": lambda ds: ds.air.cumulative_integrate("lat"),
    "earliest": lambda ds: ds.seen.min("time"),
    "latest": lambda ds: ds.seen.max(),
    "mean of times": lambda ds: ds.seen.mean("time"),
    "weighted mean by numpy": lambda ds: ds.air.weighted(np.cos(np.deg2rad(ds.lat))).mean(("lat", "lon")),
    "weighted std by numpy": lambda ds: ds.gaps.weighted(np.cos(np.deg2rad(ds.lat))).std("lat"),
    "weighted mean": lambda ds: ds.air.weighted(ds.area).mean("lat"),
    "weighted mean with gaps": lambda ds: ds.gaps.weighted(ds.area).mean(("lat", "lon")),
    "weighted sum": lambda ds: ds.air.weighted(ds.area).sum("lat"),
    "weighted std": lambda ds: ds.air.weighted(ds.area).std("lat"),
    "weighted variance": lambda ds: ds.air.weighted(ds.area).var(("lat", "time")),
    "weighted quantile": lambda ds: ds.air.weighted(ds.area).quantile(0.5, dim="lat"),
    "sum of weights": lambda ds: ds.gaps.weighted(ds.area).sum_of_weights("lat"),
    "dot": lambda ds: xr.dot(ds.air, ds.area, dim="lat"),
    "matrix product": lambda ds: ds.air @ ds.n,
    "dot of three": lambda ds: xr.dot(ds.air, ds.area, ds.n),
    "covariance": lambda ds: xr.cov(ds.air, ds.n, dim="time"),
    "correlation": lambda ds: xr.corr(ds.air, ds.n, dim="time"),
    "correlation with gaps": lambda ds: xr.corr(ds.gaps, ds.air, dim="time"),
    "cross product": lambda ds: xr.cross(
        ds.air.isel(lat=slice(3)).drop_vars(["height", "zone"]),
        ds.air.isel(lat=slice(1, 4)).assign_coords(lat=ds.lat.values[:3]).drop_vars(["height", "zone"]),
        dim="lat",
    ),
    "reduce by a function": lambda ds: ds.air.reduce(np.sum, "time"),
    "reduce by ptp": lambda ds: ds.air.reduce(np.ptp, "lat"),
    "range": lambda ds: ds.air.max("time") - ds.air.min("time"),
    "any null": lambda ds: ds.gaps.isnull().any(("lat", "lon")),
    "linear fit by sums": lambda ds: ((ds.n - ds.n.mean()) * (ds.air - ds.air.mean())).sum() / (ds.n**2).sum(),
}

_INDEXING: dict[str, Workflow] = {
    "isel number": lambda ds: ds.air.isel(time=3),
    "isel negative": lambda ds: ds.air.isel(time=-1, lat=0),
    "isel slice": lambda ds: ds.air.isel(time=slice(2, 30, 3)),
    "isel list": lambda ds: ds.air.isel(lon=[4, 0, 0]),
    "isel outer": lambda ds: ds.air.isel(time=[3, 1], lat=[0, 2, 4]),
    "isel pointwise": lambda ds: ds.air.isel(
        lat=xr.DataArray([0, 2, 4], dims="p"), lon=xr.DataArray([1, 1, 5], dims="p")
    ),
    "isel pointwise in time": lambda ds: ds.air.isel(
        time=xr.DataArray([[0, 2], [39, 7]], dims=("p", "q")), lon=xr.DataArray([1, 5], dims="q")
    ),
    "isel by an array of ours": lambda ds: ds.air.drop_vars("time").isel(time=ds.air.argmax("time")),
    "isel mask of numpy": lambda ds: ds.air.isel(time=np.arange(40) % 3 == 0),
    "sel label": lambda ds: ds.air.sel(lat=30.0),
    "sel nearest": lambda ds: ds.air.sel(lat=17.0, lon=100, method="nearest"),
    "sel slice": lambda ds: ds.air.sel(lat=slice(-30, 30), lon=slice(60, 240)),
    "sel date": lambda ds: ds.air.sel(time="2002-01-03"),
    "sel month": lambda ds: ds.air.sel(time="2001-12"),
    "sel dates": lambda ds: ds.air.sel(time=slice("2001-12-25", "2002-01-10")),
    "sel list": lambda ds: ds.air.sel(lon=[60, 300]),
    "sel pointwise": lambda ds: ds.air.sel(
        lat=xr.DataArray([0.0, 60.0], dims="p"), lon=xr.DataArray([120.0, 0.0], dims="p")
    ),
    "sel by condition on an index": lambda ds: ds.air.sel(time=ds.time.dt.month == 1),
    "sel in a dataset": lambda ds: ds.sel(lat=0.0),
    "loc": lambda ds: ds.air.loc["2002-01-01":"2002-01-03", :, 60.0],
    "brackets": lambda ds: ds.air[3:5, 1, ::2],
    "head": lambda ds: ds.air.head(time=3),
    "tail": lambda ds: ds.air.tail(lat=2),
    "thin": lambda ds: ds.air.thin(time=7),
    "where with drop by an index": lambda ds: ds.air.where(ds.lat > 0, drop=True),
    "where with drop by values": lambda ds: ds.air.where(ds.air.mean("time") > 279, drop=True),
    "drop_sel": lambda ds: ds.air.drop_sel(lat=0.0),
    "drop_isel": lambda ds: ds.air.drop_isel(time=[0, 5]),
    "dropna": lambda ds: ds.gaps.dropna("time", how="all"),
    "sortby an index": lambda ds: ds.air.sortby("lat", ascending=False),
    "sortby data": lambda ds: ds.air.sortby(ds.n.isel(lon=0)),
    "argsort": lambda ds: ds.air.isel(lat=0, lon=0).argsort(),
    "reindex": lambda ds: ds.air.reindex(lat=[-60.0, 10.0, 60.0]),
    "reindex nearest": lambda ds: ds.air.reindex(lat=[-50.0, 10.0], method="nearest"),
    "reindex_like": lambda ds: ds.air.isel(time=slice(10)).reindex_like(ds.n),
    "roll": lambda ds: ds.air.roll(lon=2, roll_coords=True),
    "shift": lambda ds: ds.air.shift(time=1),
    "shift back": lambda ds: ds.air.shift(time=-2, fill_value=0.0),
    "pad": lambda ds: ds.air.pad(lon=1, mode="wrap"),
    "pad constant": lambda ds: ds.air.pad(lat=(1, 2), constant_values=0.0),
    "align": lambda ds: xr.align(ds.air.isel(lat=slice(3)), ds.air.isel(lat=slice(1, 5)))[0],
    "align outer": lambda ds: xr.align(ds.air.isel(lat=slice(3)), ds.area, join="outer")[0],
    "sum of unlike indexes": lambda ds: ds.air.isel(time=slice(20)) + ds.air.isel(time=slice(10, 30)),
    "index of the maximum": lambda ds: ds.air.isel(
        {dim: int(at) for dim, at in ds.air.mean("time").argmax(...).items()}
    ),
    "sum of some": lambda ds: ds.air.isel(time=np.array([3, 1])).sum(),
    "broadcast_like": lambda ds: ds.area.broadcast_like(ds.air),
    "broadcast": lambda ds: xr.broadcast(ds.area, ds.n)[0],
    "query": lambda ds: ds.query(lat="lat > 0").air,
    "combining with a coordinate of ours": lambda ds: (
        (a := ds.air.assign_coords(mean=ds.air.mean("time"))) + (a.assign_coords(mean=ds.air.mean("time")))
    ),
    "isel missing dims": lambda ds: ds.air.isel(nothing=0, missing_dims="ignore"),
    "squeeze": lambda ds: ds.air.isel(time=[0]).squeeze(),
}

_SHAPES: dict[str, Workflow] = {
    "transpose": lambda ds: ds.air.transpose("lon", ..., "time"),
    "T": lambda ds: ds.air.T,
    "expand_dims": lambda ds: ds.air.expand_dims(member=[1, 2]),
    "stack": lambda ds: ds.air.stack(p=("lat", "lon")),
    "stack and unstack": lambda ds: ds.air.stack(p=("lat", "lon")).unstack("p"),
    "mean of stacked": lambda ds: ds.air.stack(p=("lat", "lon")).mean("p"),
    "to_stacked_array": lambda ds: ds[["air", "gaps"]].to_stacked_array("feature", sample_dims=["time"]),
    "concat in time": lambda ds: xr.concat([ds.air.isel(time=slice(20)), ds.air.isel(time=slice(20, 40))], "time"),
    "concat new dimension": lambda ds: xr.concat([ds.air, ds.gaps], pd.Index(["a", "b"], name="kind")),
    "concat datasets": lambda ds: xr.concat(
        [ds[["air", "n"]].isel(time=slice(20)), ds[["air", "n"]].isel(time=slice(20, 40))], "time"
    ),
    "merge": lambda ds: xr.merge([ds.air.rename("a"), ds.gaps.rename("b")]),
    "combine_by_coords": lambda ds: xr.combine_by_coords(
        [ds[["air"]].isel(time=slice(20)), ds[["air"]].isel(time=slice(20, 40))]
    ),
    "to_dataset": lambda ds: ds.air.isel(lat=slice(2)).to_dataset(dim="lat"),
    "to_array": lambda ds: ds[["air", "gaps"]].to_array("kind"),
    "assign": lambda ds: ds.assign(sum=ds.air + ds.n, mean=lambda d: d.air.mean("time")),
    "assign_coords": lambda ds: ds.air.assign_coords(lon=(ds.lon + 180) % 360 - 180).sortby("lon"),
    "rename": lambda ds: ds.rename(air="temperature", lat="latitude"),
    "swap_dims": lambda ds: ds[["air"]].isel(lat=slice(0, 1)).swap_dims(lat="zone").air,
    "drop_vars": lambda ds: ds.drop_vars(["n", "height"]),
    "set_index": lambda ds: ds[["air"]].set_index(lat="zone").air,
    "coarsen": lambda ds: ds.air.coarsen(time=5, lon=2).mean(),
    "coarsen trim": lambda ds: ds.air.coarsen(time=7, boundary="trim").max(),
    "coarsen construct": lambda ds: ds.air.coarsen(time=10).construct(time=("decade", "day")),
    "coarsen pad": lambda ds: ds.air.coarsen(time=7, boundary="pad").sum(),
    "chunk": lambda ds: ds.chunk({"lat": 2, "time": 8}),
    "chunk one array": lambda ds: ds.air.chunk(time=8).mean("time"),
    "unify_chunks": lambda ds: xr.unify_chunks(ds.air, ds.n)[0],
    "copy deep": lambda ds: ds.copy(deep=True),
    "persist": lambda ds: ds.air.drop_vars("height"),
    "map_blocks": lambda ds: xr.map_blocks(lambda a: a * 2, ds.air),
    "pipe": lambda ds: ds.pipe(lambda d: d.air - d.n),
    "map of a dataset": lambda ds: ds[["air", "gaps"]].map(np.sqrt),
    "isel then stack then sum": lambda ds: ds.air.isel(time=slice(5)).stack(q=("time", "lat")).sum("lon"),
    "datatree mean": lambda ds: (
        xr.DataTree.from_dict({"/": ds[["air"]], "/more": ds[["gaps", "n"]]}).mean("time")["more"].to_dataset()
    ),
}

_GROUPS: dict[str, Workflow] = {
    "groupby month mean": lambda ds: ds.air.groupby("time.month").mean(),
    "groupby month of gaps": lambda ds: ds.gaps.groupby("time.month").mean(),
    "groupby season std": lambda ds: ds.air.groupby("time.season").std(),
    "groupby sum": lambda ds: ds.gaps.groupby("time.dayofweek").sum(),
    "groupby count": lambda ds: ds.gaps.groupby("time.month").count(),
    "groupby max": lambda ds: ds.air.groupby("time.month").max(),
    "groupby min": lambda ds: ds.gaps.groupby("time.dayofweek").min(),
    "groupby first": lambda ds: ds.air.groupby("time.month").first(),
    "groupby first of gaps": lambda ds: ds.gaps.groupby("time.month").first(),
    "groupby last": lambda ds: ds.air.groupby("time.month").last(),
    "groupby var": lambda ds: ds.air.groupby("time.dayofweek").var(),
    "groupby median": lambda ds: ds.air.groupby("time.month").median(),
    "groupby quantile": lambda ds: ds.air.groupby("time.month").quantile(0.5),
    "groupby a coordinate": lambda ds: ds.air.groupby("zone").mean(),
    "groupby a coordinate, all dimensions": lambda ds: ds.air.groupby("zone").mean(...),
    "groupby two": lambda ds: ds.air.groupby(["time.month", "zone"]).mean(),
    "groupby bins": lambda ds: ds.air.groupby_bins("lat", [-90, 0, 90]).mean(),
    "groupby bins of an index": lambda ds: ds.air.groupby_bins("lon", 3).sum(),
    "groupby map": _standardised,
    "groupby any": lambda ds: (ds.air > 290).groupby("time.month").any(),
    "groupby prod": lambda ds: (ds.air / 280).groupby("time.dayofweek").prod(),
    "groupby argmax": lambda ds: ds.air.groupby("time.month").map(lambda g: g.argmax("time")),
    "groupby cumsum": lambda ds: ds.air.groupby("time.month").cumsum(),
    "groupby fillna": lambda ds: ds.gaps.groupby("time.month").fillna(0.0),
    "anomalies": _anomalies,
    "anomalies of a dataset": lambda ds: (
        ds[["air", "n"]].groupby("time.month") - ds[["air", "n"]].groupby("time.month").mean()
    ),
    "resample weeks": lambda ds: ds.air.resample(time="7D").mean(),
    "resample months": lambda ds: ds.gaps.resample(time="MS").max(),
    "resample dataset": lambda ds: ds[["air", "n"]].resample(time="5D").sum(),
    "resample count": lambda ds: ds.gaps.resample(time="10D").count(),
    "resample first": lambda ds: ds.air.resample(time="10D").first(),
    "resample nearest": lambda ds: ds.air.isel(time=slice(6)).resample(time="12h").nearest(),
    "resample asfreq": lambda ds: ds.air.isel(time=slice(6)).resample(time="12h").asfreq(),
    "resample interpolate": lambda ds: ds.air.isel(time=slice(6)).resample(time="12h").interpolate("linear"),
    "resample ffill": lambda ds: ds.air.isel(time=slice(6)).resample(time="12h").ffill(),
    "rolling mean": lambda ds: ds.air.rolling(time=5).mean(),
    "rolling centred": lambda ds: ds.air.rolling(time=3, center=True).mean(),
    "rolling min_periods": lambda ds: ds.gaps.rolling(time=4, min_periods=1).sum(),
    "rolling max": lambda ds: ds.air.rolling(lon=2).max(),
    "rolling std": lambda ds: ds.air.rolling(time=6).std(),
    "rolling median": lambda ds: ds.air.rolling(time=3).median(),
    "rolling over two": lambda ds: ds.air.rolling(lat=2, lon=3, min_periods=1).mean(),
    "rolling construct": lambda ds: ds.air.rolling(time=4).construct("window").mean("window"),
    "rolling count": lambda ds: ds.gaps.rolling(time=4).count(),
    "rolling reduce": lambda ds: ds.air.rolling(time=4).reduce(np.mean),
    "rolling argmax": lambda ds: ds.air.rolling(time=3).argmax(),
    "rolling weighted": lambda ds: ds.air.rolling(time=3).construct("w").dot(xr.DataArray([0.25, 0.5, 0.25], dims="w")),
    "rolling of a dataset": lambda ds: ds[["air", "gaps"]].rolling(time=3).mean(),
    "rolling exponential": lambda ds: ds.air.rolling(time=3, min_periods=2).var(),
}

_NUMERICS: dict[str, Workflow] = {
    "interp": lambda ds: ds.air.interp(lat=[-10.0, 20.0]),
    "interp two": lambda ds: ds.air.interp(lat=[-10.0, 20.0], lon=[30.0, 90.0, 100.0]),
    "interp nearest": lambda ds: ds.air.interp(lon=[30.0, 90.0], method="nearest"),
    "interp in time": lambda ds: ds.air.interp(time=np.array(["2002-01-01T12"], "datetime64[ns]")),
    "interp pointwise": lambda ds: ds.air.interp(
        lat=xr.DataArray([0.0, 10.0], dims="p"), lon=xr.DataArray([100.0, 10.0], dims="p")
    ),
    "interp cubic": lambda ds: ds.air.interp(lat=[-10.0, 20.0], method="cubic"),
    "interp_like": lambda ds: ds.air.interp_like(xr.DataArray(np.zeros(2), coords={"lat": [5.0, 6.0]}, dims="lat")),
    "interp of a dataset": lambda ds: ds[["air", "n"]].interp(lon=[10.0, 20.0]),
    "interpolate_na": lambda ds: _whole(ds.gaps, "time").interpolate_na("time"),
    "interpolate_na in space": lambda ds: ds.gaps.interpolate_na("lon", use_coordinate=False),
    "interpolate_na limited": lambda ds: ds.gaps.interpolate_na("lon", limit=2, use_coordinate=False),
    "ffill": lambda ds: ds.gaps.ffill("time"),
    "bfill": lambda ds: ds.gaps.bfill("lat"),
    "polyfit": lambda ds: ds.air.polyfit("time", 1, skipna=False),
    "polyfit looking for gaps": lambda ds: ds.air.polyfit("time", 1),
    "polyfit with gaps": lambda ds: ds.gaps.polyfit("lat", 1, skipna=True),
    "polyval": lambda ds: xr.polyval(ds.lat, ds.air.polyfit("lat", 2, skipna=False).polyfit_coefficients),
    "detrend": lambda ds: ds.air - xr.polyval(ds.lon, ds.air.polyfit("lon", 1, skipna=False).polyfit_coefficients),
    "curvefit": lambda ds: _whole(ds.air.isel(lat=0, lon=slice(2)), "time").curvefit(
        "time", _linear, p0={"a": 0.0, "b": 280.0}
    ),
    "apply_ufunc allowed": lambda ds: xr.apply_ufunc(lambda a: a * 2 + 1, ds.air, dask="allowed"),
    "apply_ufunc parallelized": lambda ds: xr.apply_ufunc(
        np.tanh, ds.air / 300, dask="parallelized", output_dtypes=[float]
    ),
    "apply_ufunc core": lambda ds: xr.apply_ufunc(
        lambda a: np.sort(a, axis=-1)[..., 1],
        ds.air,
        input_core_dims=[["lon"]],
        dask="parallelized",
        output_dtypes=[float],
    ),
    "apply_ufunc core in pieces": lambda ds: xr.apply_ufunc(
        lambda a: a.mean(axis=-1),
        ds.air,
        input_core_dims=[["time"]],
        dask="parallelized",
        output_dtypes=[float],
        dask_gufunc_kwargs={"allow_rechunk": True},
    ),
    "apply_ufunc vectorize": lambda ds: xr.apply_ufunc(
        lambda a, b: float(np.dot(a, b)),
        ds.air,
        ds.area,
        input_core_dims=[["lat"], ["lat"]],
        vectorize=True,
        dask="parallelized",
        output_dtypes=[float],
    ),
    "apply_ufunc two results": lambda ds: xr.apply_ufunc(
        lambda a: (a.min(-1), a.max(-1)),
        ds.air,
        input_core_dims=[["lon"]],
        output_core_dims=[[], []],
        dask="parallelized",
        output_dtypes=[float, float],
    )[1],
    "apply_ufunc new dimension": lambda ds: xr.apply_ufunc(
        lambda a: np.stack([a, a * 2], axis=-1),
        ds.air,
        output_core_dims=[["twice"]],
        dask="parallelized",
        output_dtypes=[float],
        dask_gufunc_kwargs={"output_sizes": {"twice": 2}},
    ),
    "apply_ufunc of a dataset": lambda ds: xr.apply_ufunc(
        np.square, ds[["air", "gaps"]], dask="parallelized", output_dtypes=[float]
    ),
    "eof": lambda ds: xr.apply_ufunc(
        lambda a: np.linalg.svd(a - a.mean(0), full_matrices=False)[1],
        ds.air.stack(p=("lat", "lon")).isel(time=slice(20)),
        input_core_dims=[["time", "p"]],
        output_core_dims=[["mode"]],
        dask="parallelized",
        output_dtypes=[float],
        dask_gufunc_kwargs={"output_sizes": {"mode": 20}, "allow_rechunk": True},
    ),
    "fourier": lambda ds: abs(
        xr.apply_ufunc(np.fft.rfft, ds.air, input_core_dims=[["lon"]], output_core_dims=[["k"]], dask="allowed")
    ),
    "dates to years": lambda ds: ds.seen.dt.year,
    "floor to days": lambda ds: ds.seen.dt.floor("D"),
    "years by astype": lambda ds: xr.apply_ufunc(
        lambda t: t.astype("datetime64[Y]").astype("int64") + 1970, ds.seen, dask="allowed"
    ),
    "grouping by data": lambda ds: (
        ds.air.assign_coords(odd=(ds.n.isel(lon=0, drop=True) % 2).compute()).groupby("odd").mean()
    ),
    "area mean and trend": lambda ds: ds.air.weighted(ds.area).mean(("lat", "lon")).polyfit("time", 1, skipna=False),
    "bilinear of anomalies": lambda ds: _anomalies(ds).interp(lon=[15.0]),
    "percent of season": lambda ds: ds.air / ds.air.groupby("time.season").max().max("season") * 100,
    "running anomaly": lambda ds: ds.air - ds.air.rolling(time=7, center=True, min_periods=1).mean(),
    "degree days": lambda ds: (ds.air - 278).clip(min=0).cumsum("time").isel(time=-1),
    "spread of members": lambda ds: xr.concat([ds.air, ds.air + 1, ds.air * 1.01], "member").std("member"),
    "nino like index": lambda ds: ds.air.sel(lat=slice(-5, 5)).mean(("lat", "lon")).rolling(time=3).mean(),
}

WORKFLOWS = {**_ARITHMETIC, **_REDUCTIONS, **_INDEXING, **_SHAPES, **_GROUPS, **_NUMERICS}

#: By name: what xarray does with it, and the row of the list in ``docs/how-to/xarray.md`` that says why. "computes":
#: reads data at the call, and the result is ours; "gathers": the result, or a part of it, is numpy's.
LOSSES: dict[str, tuple[str, str]] = {
    "dataset mean": ("computes", "means of dates"),
    "mean of times": ("computes", "means of dates"),
    "weighted mean": ("computes", "weights"),
    "weighted mean with gaps": ("computes", "weights"),
    "weighted sum": ("computes", "weights"),
    "weighted std": ("computes", "weights"),
    "weighted variance": ("computes", "weights"),
    "weighted quantile": ("computes", "weights"),
    "sum of weights": ("computes", "weights"),
    "area mean and trend": ("computes", "weights"),
    "where with drop by values": ("computes", "lengths that depend on data"),
    "dropna": ("computes", "lengths that depend on data"),
    "index of the maximum": ("computes", "an index of one number"),
    "grouping by data": ("computes", "groups from data"),
    "sortby data": ("computes", "sortby"),
    "polyfit looking for gaps": ("computes", "gaps in fits"),
    "polyfit with gaps": ("gathers", "gaps in fits"),
    "dates to years": ("gathers", "parts of dates"),
    "floor to days": ("gathers", "parts of dates"),
    "ffill": ("gathers", "filling forwards"),
    "bfill": ("gathers", "filling forwards"),
    "combining with a coordinate of ours": ("computes", "coordinates without an index"),
}
