"""Files that other libraries read: the call that does, by ending or, where it has none, by name."""

_CALLS = {
    "mesh = meshio.read(path); Shape(pos=torch.tensor(mesh.points), "
    'face=torch.tensor(mesh.get_cells_type("triangle")).T), of the package meshio': (
        ".vtu .msh .inp .mesh .med .xdmf .xmf .bdf .nas .fem .ugrid .e .exo .ex2 .cgns .avs "
        ".su2 .mdpa .dato .vol .tec .f3grid .node .ele"
    ),
    "pos, faces = nibabel.load(path).agg_data(); Shape(pos=torch.tensor(pos), "
    "face=torch.tensor(faces).long().T), of the package nibabel": ".gii",
    "pos, faces = nibabel.freesurfer.read_geometry(path); Shape(pos=torch.tensor(pos).float(), "
    "face=torch.tensor(faces.astype(int)).T), of the package nibabel": (
        ".white .pial .inflated .sphere .orig .smoothwm"
    ),
    'mesh = trimesh.load(path, force="mesh"); Shape(pos=torch.tensor(mesh.vertices), '
    "face=torch.tensor(mesh.faces).T), of the package trimesh": ".dae .3mf",
    "atoms = ase.io.read(path); ase.io.write('atoms.extxyz', atoms), of the package ase": (
        ".vasp poscar contcar .pdb .xsf .traj .gro .mol .sdf .cml .res .cube"
    ),
    "scan = pye57.E57(path).read_scan(0), of the package pye57": ".e57",
    "file = h5py.File(path), of the package h5py, and Shape(pos=torch.tensor(file[name][:]))": (
        ".h5 .hdf5"
    ),
    "scipy.io.loadmat(path), and Shape(pos=torch.tensor(...)) of its arrays": ".mat",
    "numpy.fromfile(path, 'float32').reshape(-1, 4), if these are x, y, z and an intensity": ".bin",
    "pandas.read_parquet(path).to_csv('points.csv', index=False)": ".parquet",
}
#: By ending or name, the call in place of ``load``.
FOREIGN = {ending: call for call, endings in _CALLS.items() for ending in endings.split()}
