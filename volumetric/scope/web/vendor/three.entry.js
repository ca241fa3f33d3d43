export {
  AmbientLight, Box3, BoxGeometry, BufferAttribute, BufferGeometry, CanvasTexture, Color, CylinderGeometry, DataTexture, DirectionalLight, DoubleSide,
  DynamicDrawUsage, EdgesGeometry, Float32BufferAttribute, FloatType, Fog, Frustum, Group, HemisphereLight, IcosahedronGeometry, InstancedBufferAttribute,
  InstancedBufferGeometry, InstancedMesh, Line, LineBasicMaterial, LineSegments, LinearFilter, MathUtils, Matrix4, Mesh, MeshBasicMaterial,
  MeshLambertMaterial, NearestFilter, Object3D, OrthographicCamera, PerspectiveCamera, Plane, PlaneGeometry, Points, Quaternion, RGBAFormat, Ray, Raycaster,
  RedFormat, Scene, ShaderMaterial, Sphere, SphereGeometry, Sprite, SpriteMaterial, SRGBColorSpace, Texture, Vector2, Vector3, Vector4, WebGLRenderTarget,
  WebGLRenderer,
} from "three";
export { OrbitControls } from "three/addons/controls/OrbitControls.js";
